"""A custom training loop on all GPUs that writes checkpoints, and goes on from one."""

import tempfile

import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
rows = tf.random.stateless_normal([32, 4], seed=(1, 2))
targets = tf.reduce_sum(rows, axis=1, keepdims=True)
dataset = tf.data.Dataset.from_tensor_slices((rows, targets)).batch(16)
with strategy.scope():
    weights = tf.Variable(tf.zeros([4, 1]))
    steps = tf.Variable(0, dtype=tf.int64)


def replica_step(batch):
    x, y = batch
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - y) ** 2)
    gradient = tape.gradient(loss, weights)
    total = tf.distribute.get_replica_context().all_reduce("sum", gradient)
    weights.assign_sub(0.05 * total)
    steps.assign_add(1)
    return loss


@tf.function
def step(batch):
    losses = strategy.run(replica_step, args=(batch,))
    return strategy.reduce("MEAN", losses, axis=None)


with tempfile.TemporaryDirectory() as folder:
    checkpoint = tf.train.Checkpoint(weights=weights, steps=steps)
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
    history = []
    for _ in range(3):
        for batch in strategy.experimental_distribute_dataset(dataset):
            history.append(float(step(batch)))
        manager.save()
    print(history[-1] < history[0], int(steps.numpy()), len(manager.checkpoints))
    saved = weights.read_value()
    weights.assign(tf.zeros([4, 1]))
    checkpoint.restore(manager.latest_checkpoint).assert_consumed()
    print(bool(tf.reduce_all(weights.read_value() == saved)), weights.read_value().device)
    print([each.device for each in strategy.experimental_local_results(weights)])
    with tf.device("/GPU:1"):
        alone = tf.Variable(tf.ones([2]))
        path = tf.train.Checkpoint(x=alone).write(f"{folder}/alone")
        alone.assign([5, 5])
        tf.train.Checkpoint(x=alone).read(path)
    print(alone.numpy(), alone.device)
