"""Simulated GPUs: how CuPy shows, computes on, counts and refuses them."""
