"""Code for PaddlePaddle alone: no other adapter has a module of the same name and purpose."""
