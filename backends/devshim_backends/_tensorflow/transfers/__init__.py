"""Copies of TensorFlow tensors: the implicit transfers that TensorFlow makes, and copies that devshim asks for."""
