"""A coordinator, two workers and a parameter server, each with two GPUs."""

from functools import partial

import tensorflow as tf

from devshim.testing.ports import free_port

first, second, third = (f"127.0.0.1:{free_port()}" for _ in range(3))
addresses = {"worker": [first, second], "ps": [third]}
cluster = tf.train.ClusterSpec(addresses)
config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)
start = partial(tf.distribute.Server, cluster, protocol="grpc", config=config)
servers = [start(job_name=job, task_index=index) for job in addresses for index in range(len(addresses[job]))]
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
strategy = tf.distribute.ParameterServerStrategy(resolver)
print(strategy.num_replicas_in_sync, *strategy.extended.worker_devices)
gpus = [each.name for each in tf.config.list_logical_devices("GPU")]
print(len(gpus), gpus[0], gpus[-1])

with strategy.scope():
    weight = tf.Variable([[1.0], [1.0]], aggregation=tf.VariableAggregation.SUM)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
print(weight.device)


def data(context=None):
    return tf.data.Dataset.from_tensors(tf.ones((4, 2))).repeat()


@tf.function
def train(iterator):
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x @ weight)
        weight.assign_sub(0.125 * tape.gradient(loss, weight))
        return loss

    return strategy.reduce("SUM", strategy.run(step, args=(next(iterator),)), axis=None)


iterator = iter(coordinator.create_per_worker_dataset(lambda: strategy.distribute_datasets_from_function(data)))
for _ in range(3):
    loss = coordinator.schedule(train, args=(iterator,))
    coordinator.join()
    print(loss.fetch(), weight.numpy().ravel())


def on(name):
    with tf.device(name):
        x = tf.constant([1.0, 2.0])
        return x, x * 3, tf.Variable(x)


@tf.function
def through(x):
    with tf.device("/job:worker/task:1/device:GPU:1"):
        y = x * 2
    with tf.device("/job:worker/task:0/device:GPU:0"):
        return y + 1, tf.reduce_sum(y)


for name in ("/job:worker/task:1/device:GPU:1", "/job:ps/task:0/device:CPU:0", "/GPU:1"):
    x, y, variable = on(name)
    print(x.device, y.backing_device, variable.device, y.numpy(), (x + y).device)
for each in through(tf.constant([1.0, 2.0])):
    print(each.numpy(), each.device)
for name in ("/job:worker/task:1/device:GPU:2", "/job:worker/task:7/device:GPU:0"):
    try:
        on(name)
    except tf.errors.InvalidArgumentError as error:
        print(type(error).__name__, str(error).splitlines()[0])
print(tf.config.experimental.get_memory_info("GPU:1"))
