"""Copies: those that NumPy makes implicitly, and how devshim makes its own."""
