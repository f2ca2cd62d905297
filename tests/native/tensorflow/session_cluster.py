"""Sessions of TensorFlow 1 in three processes: a parameter server, and two workers with two GPUs each."""

import json
import subprocess
import sys
import time

from devshim.testing.ports import free_port

if len(sys.argv) == 1:
    hosts = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    cluster = json.dumps({"ps": hosts[:1], "worker": hosts[1:]})
    tasks = [("ps", 0), ("worker", 0), ("worker", 1)]
    started = [
        subprocess.Popen([sys.executable, __file__, cluster, job, str(index)], stdout=subprocess.PIPE, text=True)
        for job, index in tasks
    ]
    for each in started[1:]:
        print(each.communicate()[0], end="")
    started[0].kill()
    started[0].communicate()
    sys.exit(max(each.returncode for each in started[1:]))

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()
cluster, job, index = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
server = v1.train.Server(v1.train.ClusterSpec(cluster), job_name=job, task_index=index)
if job == "ps":
    server.join()


def last(name):
    return name.replace("/replica:0", "").replace("/device", "")


def wait(session, total):
    """Wait until both workers have called this ``total`` times together."""
    session.run(arrive)
    while session.run(count) < total:
        time.sleep(0.1)


tower = f"/job:worker/task:{index}/gpu:1"
with v1.device(v1.train.replica_device_setter(cluster=cluster, worker_device=tower)):
    x = v1.placeholder(tf.float32, [None, 2], name="x")
    weight = v1.get_variable("weight", [2, 1], initializer=v1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(x @ weight - 1.0), name="loss")
    step = v1.train.get_or_create_global_step()
    train = v1.train.GradientDescentOptimizer(0.25).minimize(loss, global_step=step)
    ready = v1.report_uninitialized_variables()
    count = v1.get_variable("count", [], initializer=v1.zeros_initializer())
    arrive = count.assign_add(1.0)
print(job, index, last(weight.device), last(loss.device), last(step.device))
rows, trace, metadata = np.eye(2), v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
with v1.Session(server.target) as session:
    if index == 0:
        print(sorted(last(each.name) for each in session.list_devices()))
        session.run(v1.global_variables_initializer())
    while len(session.run(ready)):
        time.sleep(0.1)
    session.run(loss, {x: rows}, trace, metadata)
    nodes = {node.name: node.device for graph in metadata.partition_graphs for node in graph.node}
    print(last(nodes[loss.op.name]))
    for _ in range(20):
        session.run(train, {x: rows})
    wait(session, 2)
    print(session.run(step), session.run(loss, {x: rows}) < 1e-3)
    with tf.device("/job:worker/task:0/gpu:0"):
        y = tf.identity(weight)
    with tf.device("/job:worker/task:1"):
        z = y * 2
    session.run(z, options=trace, run_metadata=metadata)
    nodes = {node.name: node.device for graph in metadata.partition_graphs for node in graph.node}
    print(last(nodes[y.op.name]), last(nodes[z.op.name]))
    with tf.Graph().as_default(), v1.Session(server.target) as other:
        with tf.device("/job:worker/task:1/gpu:5"):
            missing = tf.constant(1.0) * 2
        try:
            other.run(missing)
        except tf.errors.InvalidArgumentError as error:
            print(next(line for line in str(error).splitlines() if "available" in line).partition(" but ")[0])
    wait(session, 4)
