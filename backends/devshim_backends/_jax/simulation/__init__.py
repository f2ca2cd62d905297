"""Simulated GPUs: how JAX shows, computes on, counts and refuses them."""
