"""All-reduce by NCCL, as a program for real GPUs asks for it."""

import tensorflow as tf

strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"], cross_device_ops=tf.distribute.NcclAllReduce())


@tf.function
def run():
    def replica():
        context = tf.distribute.get_replica_context()
        x = tf.constant([1.0, 2.0]) * (tf.cast(context.replica_id_in_sync_group, tf.float32) + 1)
        return context.all_reduce("SUM", x), context.all_reduce("MEAN", x)

    return strategy.run(replica)


total, mean = run()
print(*[each.numpy() for each in strategy.experimental_local_results(total)])
print(*[each.numpy() for each in strategy.experimental_local_results(mean)])

with strategy.scope():
    weight = tf.Variable(2.0)


@tf.function
def train(rate):
    def replica():
        with tf.GradientTape() as tape:
            loss = weight * (tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32) + 1)
        gradient = tf.distribute.get_replica_context().all_reduce("SUM", tape.gradient(loss, weight))
        weight.assign_sub(rate * gradient)

    strategy.run(replica)


train(0.5)
print(*[(float(each), each.device[-5:]) for each in strategy.experimental_local_results(weight)])
