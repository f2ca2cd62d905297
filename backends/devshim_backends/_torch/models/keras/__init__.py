"""Models of Keras with the PyTorch backend: patches of Keras, the scopes in which it computes, and split models."""
