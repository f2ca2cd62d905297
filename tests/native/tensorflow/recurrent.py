"""Recurrent layers, which use cuDNN on real GPUs."""

import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(0)
x = np.random.rand(8, 5, 3).astype("float32")
mask = tf.sequence_mask([5, 1, 2, 3, 4, 5, 5, 2], 5)


def largest(xs, ys):
    return max(float(np.abs(a - b).max()) for a, b in zip(tf.nest.flatten(xs), tf.nest.flatten(ys), strict=True))


def compare(layer, **options):
    """Return True if cuDNN's operator computes what the general code of Keras does, and the same gradient."""
    cudnn, general = layer(4, use_cudnn=True, **options), layer(4, use_cudnn=False, **options)
    cudnn.build(x.shape)
    general.build(x.shape)
    general.set_weights(cudnn.get_weights())
    same = []
    for given in (None, mask):
        with tf.GradientTape(persistent=True) as tape:
            results = [tf.nest.flatten(each(x, mask=given)) for each in (cudnn, general)]
            losses = [tf.reduce_sum(each[0] ** 2) for each in results]
        gradients = [
            tape.gradient(loss, each.trainable_variables) for loss, each in zip(losses, (cudnn, general), strict=True)
        ]
        same.append(largest(*results) < 1e-5 and largest(*gradients) < 1e-4)
    return same


for layer in (tf.keras.layers.LSTM, tf.keras.layers.GRU):
    for use_cudnn in (True, "auto"):
        recurrent = layer(4, use_cudnn=use_cudnn)
        model = tf.keras.Sequential(
            [tf.keras.layers.Input((5, 3)), tf.keras.layers.Bidirectional(recurrent), tf.keras.layers.Dense(1)]
        )
        model.compile("sgd", "mse")
        losses = model.fit(x, x[:, 0, :1], epochs=3, verbose=0).history["loss"]
        print(layer.__name__, use_cudnn, losses[-1] < losses[0], model(x).device[-5:])
    print(compare(layer), compare(layer, go_backwards=True), compare(layer, return_state=True))
    sequences = layer(4, use_cudnn=True, return_sequences=True)(x, mask=mask)
    print(sequences.shape, bool(tf.reduce_all(sequences[~mask] == 0)))  # Keras' general code repeats the last step

inputs, states = tf.ones((5, 8, 3)), tf.zeros((4, 8, 4))
sizes = 2 * (4 * 4 * (3 + 4) + 4 * 4 * (8 + 4)) + 4 * 2 * 16
found = tf.raw_ops.CudnnRNNV2(
    input=inputs, input_h=states, input_c=states, params=tf.fill([sizes], 0.1), direction="bidirectional"
)
print(type(found).__name__, found.output.shape, found.output_h.shape, found.output_c.shape)
plain = {"input": inputs, "input_h": states[:1], "input_c": states[:1], "params": tf.fill([36], 0.1)}
found = tf.raw_ops.CudnnRNN(**plain, rnn_mode="rnn_relu")
print(found.output[:2, 0, 0].numpy().round(4), found.output_h[0, 0].numpy().round(4))
try:
    tf.raw_ops.CudnnRNNV3(**plain, sequence_lengths=[5] * 8, num_proj=2)
except NotImplementedError as error:
    print(type(error).__name__, str(error).splitlines()[0])
