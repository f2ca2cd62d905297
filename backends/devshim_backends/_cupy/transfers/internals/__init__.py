"""Code only for CuPy: no other adapter has a module with the same name and purpose."""
