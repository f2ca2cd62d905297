"""Models and optimizers: their leaves, moving them, and splitting them over devices."""
