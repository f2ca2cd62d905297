"""What devshim costs beside native calls and other libraries: see docs/benchmarks.md.

``python -m benchmarks torch jax=PYTHON ...`` measures and writes the page; ``nox -s bench`` does so in environments it
makes itself.  Nothing here is part of the tests' verdict: times are shown, never asserted.
"""
