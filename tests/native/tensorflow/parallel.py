"""Several GPUs: strategies, datasets that they distribute, threads, and a process that is spawned."""

import copy
import multiprocessing
import threading

import keras
import numpy as np
import tensorflow as tf


def work(queue):
    with tf.device("/GPU:1"):
        queue.put((len(tf.config.list_physical_devices("GPU")), tf.ones(2).device))


def main():
    one = tf.distribute.OneDeviceStrategy("/gpu:1")
    with one.scope():
        v = tf.Variable([1.0, 2.0])
    print(v.device[-5:], one.run(lambda: v * 2).device[-5:])

    strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
    print(strategy.num_replicas_in_sync, strategy.extended.worker_devices[1])
    with strategy.scope():
        v = tf.Variable([1.0, 2.0])
        net = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        net.compile(keras.optimizers.SGD(0.1), "mse")

    @tf.function
    def total(batch):
        return strategy.run(lambda x: tf.reduce_sum(v * x), args=(batch,))

    data = tf.data.Dataset.from_tensor_slices(np.ones((8, 2), "float32")).batch(4)
    for batch in strategy.experimental_distribute_dataset(data):
        parts = strategy.experimental_local_results(batch)
        print([each.device[-5:] for each in parts], float(strategy.reduce("SUM", total(batch), axis=None)))
    features = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
    losses = net.fit(features, features[:, :1], batch_size=16, epochs=3, verbose=0).history["loss"]
    mirrored = net.weights[0].value
    print(losses[-1] < losses[0], [each.device[-5:] for each in mirrored.values])
    same = np.array_equal(mirrored.values[0].numpy(), mirrored.values[1].numpy())
    print(same)

    found = []
    thread = threading.Thread(target=lambda: found.append(tf.ones(2).device[-5:]))
    thread.start()
    thread.join()
    with tf.device("/GPU:1"):
        v = tf.Variable([1.0])
    print(found, copy.deepcopy(v).device[-5:])
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(*queue.get())
    process.join()


if __name__ == "__main__":
    main()
