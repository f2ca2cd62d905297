"""Copies: those that TensorFlow makes implicitly, and how devshim makes its own."""
