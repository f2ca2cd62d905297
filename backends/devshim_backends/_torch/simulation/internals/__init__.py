"""Code for PyTorch alone: no other adapter has a module of the same name and purpose."""
