"""Simulated GPUs: how PaddlePaddle lists them, computes on them, counts their memory, and refuses wrong uses."""
