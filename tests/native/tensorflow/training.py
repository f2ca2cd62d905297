"""Training on a GPU: Keras, a loop with a tape, a tf.function, a dataset that copies to the GPU, a saved model."""

import tempfile

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(0)
features = np.random.normal(size=(64, 3)).astype("float32")
labels = features @ np.array([[1.0], [-2.0], [3.0]], "float32")
with tf.device("/GPU:1"):
    net = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    net.compile(keras.optimizers.Adam(0.05), "mse")
    losses = net.fit(features, labels, batch_size=16, epochs=4, verbose=0).history["loss"]
print(losses[-1] < losses[0], net.weights[0].value.device[-5:], net(features).device[-5:])
print(net.optimizer.variables[2].value.device[-5:], net.predict(features, verbose=0).shape)

net = keras.Sequential([keras.layers.Input((3,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
net.compile("sgd", "mse", metrics=["mae"])
net.fit(features, labels, verbose=0)
print(net.weights[0].value.device[-5:], len(net.evaluate(features, labels, verbose=0)))

data = tf.data.Dataset.from_tensor_slices((features, labels)).batch(16)
weight, bias = tf.Variable(tf.random.normal((3, 1), stddev=0.01)), tf.Variable(tf.zeros(1))
for _ in range(10):
    for x, y in data:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.matmul(x, weight) + bias - y) ** 2)
        for each, gradient in zip([weight, bias], tape.gradient(loss, [weight, bias]), strict=True):
            each.assign_sub(0.1 * gradient)
print(weight.device[-5:], gradient.device[-5:], float(loss) < 0.1)

optimizer = keras.optimizers.SGD(0.1, momentum=0.9)


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((net(x) - y) ** 2)
    gradients = tape.gradient(loss, net.trainable_variables)
    optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
    return loss


print(*(float(step(x, y)) > 0 for x, y in data), step(x, y).device[-5:])

placed = data.apply(tf.data.experimental.copy_to_device("/GPU:1")).prefetch(1)
print({x.device[-5:] for x, _ in placed})
placed = data.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))
print({x.device[-5:] for x, _ in placed})


class Twice(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def __call__(self, x):
        with tf.device("/GPU:1"):
            y = x * 2
            print(y.device)
            return y


with tempfile.TemporaryDirectory() as folder:
    tf.saved_model.save(Twice(), folder)
    print(tf.saved_model.load(folder)(tf.ones(2)).numpy().tolist())
    net.save(f"{folder}/net.keras")
    print(keras.models.load_model(f"{folder}/net.keras").weights[0].value.device[-5:])
