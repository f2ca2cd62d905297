"""Sessions of TensorFlow 1: callables, the memory of tensors that a session keeps, threads, and servers."""

import contextlib
import io
import os
import tempfile
from threading import Thread

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.debug.lib import debug_data, debug_utils

from devshim.testing.ports import free_port

v1 = tf.compat.v1
v1.disable_eager_execution()


def memory():
    return tf.config.experimental.get_memory_info("GPU:1")["current"]


def devices(metadata):
    nodes = [node for graph in metadata.partition_graphs for node in graph.node]
    return sorted({each.device[-5:] for each in [*metadata.step_stats.dev_stats, *nodes]})


def options(fetches=(), targets=(), feeds=(), **run_options):
    named = {"fetch": fetches, "target": targets, "feed": feeds}
    return config_pb2.CallableOptions(
        run_options=v1.RunOptions(**run_options), **{key: [x.name for x in given] for key, given in named.items()}
    )


trace = {"trace_level": v1.RunOptions.FULL_TRACE, "output_partition_graphs": True}
start = memory()
with tf.Graph().as_default(), v1.Session() as session:
    with tf.device("/gpu:1"):
        weight = v1.get_variable("weight", [1024], initializer=v1.ones_initializer(), use_resource=True)
        bias = v1.get_variable("bias", [1024], initializer=v1.ones_initializer(), use_resource=True)
        total = tf.reduce_sum(weight + bias)
        x = v1.placeholder(tf.float32, [None])
        keep = v1.get_session_handle(x * 2)
    session.make_callable(weight.initializer)()
    print(memory() - start)
    session._make_callable_from_options(options(targets=[bias.initializer]))()
    print(memory() - start)
    print(session.make_callable(total)(), session.make_callable([total, total])())
    metadata = v1.RunMetadata()
    compute = session.make_callable(total, accept_options=True)
    print(compute(options=v1.RunOptions(**trace), run_metadata=metadata), devices(metadata))
    metadata = v1.RunMetadata()
    print(session._make_callable_from_options(options([total], **trace))(run_metadata=metadata), devices(metadata))
    try:
        session.make_callable(3)
    except TypeError as error:
        print(type(error).__name__)

    start = memory()
    handle = session.run(keep, {x: np.ones(256)})
    raw = session.make_callable(v1.get_session_handle(weight * 3))()
    print(raw.decode().split(";")[-1], memory() - start)
    more = session.make_callable(keep, [x])(np.ones(512))
    print(memory() - start)
    holder, kept = v1.get_session_tensor(handle.handle, tf.float32)
    result = tf.reduce_sum(kept)
    for name in (handle.handle, more.handle):
        print(session.make_callable(result, [holder])(name), end=" ")
        print(session._make_callable_from_options(options([result], feeds=[holder]))(name)[0])
    handle.delete()
    print(memory() - start)
print(memory())


def run(found, index):
    """Run a session with a graph of its own, and one of a graph that all threads share."""
    with tf.Graph().as_default(), tf.device(f"/gpu:{index % 2}"):
        own = v1.get_variable("own", initializer=tf.range(10.0) * index, use_resource=True)
        result = tf.reduce_sum(own + 1)
        with v1.Session() as session:
            session.run(own.initializer)
            found[index] = [float(session.run(result)) for _ in range(3)]
    with v1.Session(graph=shared) as session:
        session.run(shared_initializer)
        found[index].append(float(session.run(shared_results[index % 2])))


shared = tf.Graph()
with shared.as_default():
    shared_results = []
    for index in range(2):
        with tf.device(f"/gpu:{index}"):
            shared_results.append(tf.reduce_sum(v1.get_variable(f"w{index}", [4], initializer=v1.ones_initializer())))
    shared_initializer = v1.global_variables_initializer()
found = {}
threads = [Thread(target=run, args=(found, index)) for index in range(6)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print([found[index] for index in range(6)], memory())

with tf.Graph().as_default() as graph, v1.Session() as session, tempfile.TemporaryDirectory() as folder:
    x = v1.placeholder(tf.float32, [2], name="x")
    with tf.device("/gpu:1"):
        y = tf.multiply(x, 2.0, name="y")
    watched, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
    debug_utils.watch_graph(watched, graph, debug_urls=f"file://{folder}")
    for _ in range(2):
        session.run(y, {x: [1.0, 2.0]}, watched, metadata)
    dump = debug_data.DebugDumpDir(folder, partition_graphs=metadata.partition_graphs)
    gpu = "/job:localhost/replica:0/task:0/device:GPU:1"
    print([name[-5:] for name in sorted(dump.devices())], "y" in dump.nodes(gpu))
    print([x.tolist() for x in dump.get_tensors("y", 0, "DebugIdentity")])
    print(sorted(name[-5:] for name in os.listdir(folder) if "device" in name))
    copies = [node for each in metadata.partition_graphs for node in each.node if node.op in ("_Send", "_Recv")]
    print(sorted({node.attr[name].s.decode()[-5:] for node in copies for name in ("send_device", "recv_device")}))

for given in ({}, {"device_count": {"GPU": 1}}, {"gpu_options": v1.GPUOptions(visible_device_list="1")}):
    server = v1.train.Server({"local": [f"127.0.0.1:{free_port()}"]}, config=v1.ConfigProto(**given))
    log = io.StringIO()
    with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log), tf.Graph().as_default():
        with tf.device("/job:local/task:0/gpu:0"):
            y = tf.constant([1.0, 2.0], name="one") * 2
        with v1.Session(server.target, config=v1.ConfigProto(log_device_placement=True)) as session:
            names = [each.name for each in session.list_devices()]
            value = session.run(y)
    print(names, value, "Device mapping" in log.getvalue(), "one: (Const): " + names[1] in log.getvalue())
