"""Keras 3's objects, as the adapters of TensorFlow, PyTorch and JAX need them: no adapter, and no framework's.

Keras runs on one of them at a time, chosen by ``KERAS_BACKEND``; the adapter of that one serves it.  What is the same
on all is here: which variables a model, optimizer or metric holds and what they are called, copies, settings for
checkpoints, and the layers in canonical terms.  Only ``orders.py`` and what it needs import Keras.
"""
