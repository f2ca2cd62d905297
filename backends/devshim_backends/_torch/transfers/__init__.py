"""Copies: those that PyTorch makes implicitly, and how devshim makes its own."""
