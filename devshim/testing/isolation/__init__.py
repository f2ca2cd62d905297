"""Tests of one backend in a process of their own, reported as if they had run here.

Requirements this package answers:

* Frameworks that cannot share a process are tested in one run, and simulated cards are there before the framework is
  imported: each backend's tests run in a process made for them (`child`), where nothing else has been imported.
* Every hook and every other plugin sees ordinary reports, in the run's own order and under the tests' own names: the
  run asks for one test at a time (`parent`), so ``-x``, ``--maxfail``, ``-k``, ``--lf``, ``--junitxml``, durations and
  pytest-xdist work as they always do.
* A process that dies fails the test it was running, by name, and the others go on in a new one (`process`).
* Nothing but Python's own plain values crosses between the processes (`wire`), so neither side imports a framework
  for the other's sake.

`devshim.pytest_plugin` loads this package where there is a test to isolate, and not before.
"""
