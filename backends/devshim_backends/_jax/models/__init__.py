"""Models and optimizers of Keras 3 on JAX and of Flax NNX: finding their leaves, moving and cloning them."""
