"""Copies of JAX arrays: the implicit transfers that JAX makes, and the addresses by which devshim detects copies."""
