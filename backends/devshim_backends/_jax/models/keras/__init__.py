"""Models of Keras with the JAX backend."""
