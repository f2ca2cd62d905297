"""A Keras model on its JAX backend: it is on the first GPU, as with a real one."""

import keras
import numpy as np

keras.utils.set_random_seed(0)
print(keras.distribution.list_devices())
model = keras.Sequential([keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
x = np.random.default_rng(0).standard_normal((16, 3)).astype("float32")
history = model.fit(x, x.sum(1, keepdims=True), epochs=3, verbose=0)
print(sorted({str(weight.value.device) for weight in model.weights}))
print(history.history["loss"][-1] < history.history["loss"][0], model(x).device)
