"""Copies: those that CuPy makes implicitly, and how devshim makes its own."""
