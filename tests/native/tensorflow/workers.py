"""Two workers of `MultiWorkerMirroredStrategy`, which are two processes with two GPUs each."""

import json
import os
import subprocess
import sys

from devshim.testing.ports import free_port

if len(sys.argv) == 1:
    workers = [f"127.0.0.1:{port}" for port in (free_port(), free_port())]
    started = []
    for index in range(2):
        task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        variables = {**os.environ, "TF_CONFIG": json.dumps(task)}
        command = [sys.executable, __file__, str(index)]
        started.append(subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True))
    for each in started:
        print(each.communicate()[0], end="")
    sys.exit(max(each.returncode for each in started))

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
print(strategy.num_replicas_in_sync, *strategy.extended.worker_devices)
print(len(tf.config.list_logical_devices("GPU")), dict(strategy.cluster_resolver.num_accelerators()))
with strategy.scope():
    weight = tf.Variable([1.0, 2.0])
data = tf.data.Dataset.from_tensor_slices(tf.reshape(tf.range(16.0), (8, 2))).batch(8)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = strategy.experimental_distribute_dataset(data.with_options(options))


@tf.function
def train(batch):
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight * x)
        total = tf.distribute.get_replica_context().all_reduce("SUM", tape.gradient(loss, weight))
        weight.assign_sub(0.01 * total)
        return loss

    return strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)


for batch in data:
    print(float(train(batch)))
for each in strategy.experimental_local_results(weight):
    print(each.numpy().round(4), each.device)
print(tf.ones(1).device)
