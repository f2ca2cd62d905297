"""Shared support for Keras 3 objects in the adapters of TensorFlow, PyTorch and JAX.

Keras runs on one of these frameworks at a time, chosen by ``KERAS_BACKEND``; that framework's adapter serves it. This
package contains what is the same for all three: the variables of a model, optimizer or metric and their names, copies,
settings for checkpoints, and layers in canonical terms. It is not an adapter and imports no framework. Only
``layout_inference.py`` and the modules that it needs, and ``layer_specs.py``, import Keras when they are loaded.
"""
