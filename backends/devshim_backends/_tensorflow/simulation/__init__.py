"""Simulated GPUs for TensorFlow: logical CPUs, with memory that is counted and device rules that are enforced."""
