"""Simulated GPUs: how PaddlePaddle shows, computes on, counts and refuses them."""
