"""Simulated GPUs for JAX: JAX's own CPU devices, with memory that is counted and limited."""
