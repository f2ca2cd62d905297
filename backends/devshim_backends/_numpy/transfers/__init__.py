"""Copies of NumPy arrays: the implicit transfers that NumPy makes on simulated GPUs."""
