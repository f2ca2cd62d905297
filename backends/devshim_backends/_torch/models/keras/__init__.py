"""Keras models of which PyTorch is the backend: patches of Keras, the scopes in which it computes, and split models."""
