"""`devshim certify`: checks on a machine with real cards that devshim does there what its documentation says.

How it is built:

* A claim (`devshim.certify.claims`) is a sentence of the documentation and a function that raises where it is false.
* Each framework's claims run in a process of their own (`devshim.certify._worker`), which writes one line of JSON for
  each result. Where the process dies, the claim that was running fails, and a new process goes on with the next one.
* What must happen before a framework has started runs in further processes (`devshim.certify.fresh`).
* Nothing is imported from a framework by statement: its module is what `devshim.framework` gives.

`import devshim` loads none of it.
"""
