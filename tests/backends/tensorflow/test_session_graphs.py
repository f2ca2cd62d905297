"""Tests of graphs of ``tf.compat.v1`` after the simulation of the GPUs on which a session ran them."""

from __future__ import annotations

import pytest
import tensorflow as tf

import devshim as ds


@pytest.mark.usefixtures("current")
def test_a_graph_has_its_own_devices_after_the_simulation() -> None:
    graph = tf.Graph()
    with ds.simulate(gpus=2, native_names=True):
        with graph.as_default():
            x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
            with tf.device("/gpu:1"):
                triple = tf.multiply(x, 3.0, name="triple")
            result = tf.add(triple, triple, name="sum")
        with tf.compat.v1.Session(graph=graph) as session:
            assert session.run(result, {x: [1, 2]}).tolist() == [6, 12]
    expected = ["", "/device:GPU:1", "/device:GPU:1", ""]
    assert [node.device for node in graph.as_graph_def().node] == expected
    assert [op.device for op in graph.get_operations()] == expected
    with ds.simulate(gpus=2, native_names=True), tf.compat.v1.Session(graph=graph) as session:
        metadata = tf.compat.v1.RunMetadata()
        trace = tf.compat.v1.RunOptions(output_partition_graphs=True)
        assert session.run(result, {x: [1, 2]}, trace, metadata).tolist() == [6, 12]
        used = {node.name: node.device[-5:] for each in metadata.partition_graphs for node in each.node}
        assert (used["triple"], used["sum"]) == ("GPU:1", "GPU:0")
