"""Simulated GPUs: their number, memory and faults."""
