"""Copies: those that MXNet makes implicitly, and how devshim makes its own."""
