"""Checkpoints: saving and loading trees, models and optimizers on any framework."""
