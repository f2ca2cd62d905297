"""Simulated GPUs: how MXNet shows, computes on, counts and refuses them."""
