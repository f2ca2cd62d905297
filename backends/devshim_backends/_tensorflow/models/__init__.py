"""Keras models, ``tf.Module`` objects and optimizers: finding their leaves, moving, cloning and splitting them."""
