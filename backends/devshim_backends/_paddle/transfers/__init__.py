"""Copies: those that PaddlePaddle makes implicitly, and how devshim makes its own."""
