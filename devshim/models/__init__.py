"""Moving whole models and optimizers."""
