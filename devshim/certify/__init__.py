"""`devshim certify`: check on a machine with real GPUs that devshim does what its documentation promises.

How it is built:

* A claim (`devshim.certify.claims`) is a sentence of the documentation, and a function that raises if it is false.
* Each framework's claims run in a separate process (`devshim.certify._worker`), which writes one line of JSON for
  each result. If the process dies, the claim that was running fails, and a new process continues with the next one.
* Checks of behaviour before a framework's start run in further processes (`devshim.certify.fresh`).
* No framework is imported by statement: `devshim.framework` returns its module.

`import devshim` loads none of these modules.
"""
