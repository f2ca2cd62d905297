"""Copies: those that MXNet makes implicitly, and those that devshim makes."""
