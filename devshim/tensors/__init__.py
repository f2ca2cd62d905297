"""Functions that place, copy and create tensors."""
