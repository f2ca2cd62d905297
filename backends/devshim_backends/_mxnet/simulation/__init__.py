"""Simulated GPUs: how MXNet lists them, computes on them, counts their memory, and refuses wrong uses of them."""
