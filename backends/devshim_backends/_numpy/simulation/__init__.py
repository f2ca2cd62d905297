"""Simulated GPUs: how NumPy shows, computes on, counts and refuses them."""
