"""Code only for PyTorch: no other adapter has a module with the same name and purpose."""
