"""Code only for PaddlePaddle: no other adapter has a module with the same name and purpose."""
