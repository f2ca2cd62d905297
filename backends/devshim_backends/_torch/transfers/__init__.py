"""Copies: implicit ones made by PyTorch, and devshim's own."""
