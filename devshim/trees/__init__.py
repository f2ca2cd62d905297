"""Trees: nested containers of tensors and models."""
