"""Moves of whole models and optimizers."""
