"""Recurrent layers, which use cuDNN on real GPUs."""

import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(0)
x = np.ones((8, 5, 3), np.float32)
for layer in (tf.keras.layers.LSTM, tf.keras.layers.GRU):
    model = tf.keras.Sequential([tf.keras.layers.Input((5, 3)), layer(4), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    losses = model.fit(x, x[:, 0, :1], epochs=3, verbose=0).history["loss"]
    print(layer.__name__, losses[-1] < losses[0], model(x).device[-5:])

try:
    tf.raw_ops.CudnnRNNV2(input=x, input_h=x, input_c=x, params=x)
except tf.errors.NotFoundError as error:
    print(type(error).__name__, str(error).splitlines()[0])
