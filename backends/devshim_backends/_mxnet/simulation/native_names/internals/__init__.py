"""Code only for MXNet: no other adapter has a module with the same name and purpose."""
