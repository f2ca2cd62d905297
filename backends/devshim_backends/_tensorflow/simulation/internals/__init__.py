"""Code only for TensorFlow: no other adapter has a module with the same name and purpose."""
