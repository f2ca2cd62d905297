"""A custom training loop on two GPUs: a mirrored strategy, a distributed dataset, a step of all replicas, metrics."""

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
print("Number of devices:", strategy.num_replicas_in_sync)
BATCH, EPOCHS = 16, 3
images = np.random.default_rng(0).normal(size=(64, 8, 8, 1)).astype("float32")
labels = (images.mean((1, 2, 3)) > 0).astype("int64")
data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH)
batches = strategy.experimental_distribute_dataset(data)

tf.keras.utils.set_random_seed(0)
with strategy.scope():
    criterion = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(4, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(2),
        ]
    )
    optimizer = tf.keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)


def train_step(inputs):
    images, labels = inputs
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        loss = tf.nn.compute_average_loss(criterion(labels, logits), global_batch_size=BATCH)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    accuracy.update_state(labels, logits)
    return loss


@tf.function
def distributed_step(inputs):
    losses = strategy.run(train_step, args=(inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


history = []
for _ in range(EPOCHS):
    history.append(float(sum(distributed_step(batch) for batch in batches)) / len(data))
    accuracy.reset_state()
print(history[-1] < history[0], len(history))
kernel = model.trainable_variables[0].value
print([each.device[-5:] for each in kernel.values])
print(np.array_equal(kernel.values[0].numpy(), kernel.values[1].numpy()))
total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones(2)))
print([(each.device[-5:], each.numpy().tolist()) for each in strategy.experimental_local_results(total)])
print(sorted(info for info in tf.config.experimental.get_memory_info("GPU:1")))
