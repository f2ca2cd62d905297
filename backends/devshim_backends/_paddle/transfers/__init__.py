"""Copies: those that PaddlePaddle makes implicitly, and those that devshim makes."""
