"""Code only for JAX: no other adapter has a module with the same name and purpose."""
