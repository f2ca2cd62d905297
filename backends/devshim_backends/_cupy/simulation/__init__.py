"""Simulated GPUs, which CuPy does not support: the package refuses them."""
