"""Copies: those that JAX makes implicitly, and how devshim makes its own."""
