"""Copies of JAX arrays: the implicit transfers that JAX makes, and the operators that mix devices."""
