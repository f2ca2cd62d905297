"""Keras models of which JAX is the backend."""
