"""Tests of one backend in their own process, reported as if they had run in the main process.

Requirements that this package meets:

* Frameworks that cannot share a process are tested in one run, and simulated GPUs exist before the framework is
  imported. For this, each backend's tests run in their own process (`worker`), in which nothing else was imported.
* Every hook and every other plugin sees ordinary reports, in the run's own order and under the tests' own names. The
  run requests one test at a time (`plugin`), so ``-x``, ``--maxfail``, ``-k``, ``--lf``, ``--junitxml``, durations and
  pytest-xdist work as usual.
* A process that dies fails the test that it was running, by name, and the other tests continue in a new one
  (`process`).
* Only Python's built-in plain values cross between the processes (`protocol`), so neither side has to import a
  framework for the other.

`devshim.pytest_plugin` loads this package only if there is a test to isolate.
"""
