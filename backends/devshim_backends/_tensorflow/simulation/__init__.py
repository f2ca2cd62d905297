"""Simulated GPUs: how TensorFlow shows, computes on, counts and refuses them."""
