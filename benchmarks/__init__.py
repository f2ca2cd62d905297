"""Benchmarks of devshim against native calls and other libraries: see docs/benchmarks.md.

``python -m benchmarks torch jax=PYTHON ...`` measures and writes the page; ``nox -s bench`` does the same in
environments that it creates. No test depends on these results: times are shown, never asserted.
"""
