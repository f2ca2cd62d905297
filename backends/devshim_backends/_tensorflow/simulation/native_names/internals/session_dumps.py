"""Records of a session's run that TensorFlow's C++ code writes: metadata, and the files of ``debug_utils.watch_graph``.

They name logical CPUs, and are changed to the names of GPUs after the run. A file in a folder for each device is an
``Event``, with a graph or with a tensor.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from shutil import rmtree
from typing import Any

import tensorflow as tf
from tensorflow.core.util import event_pb2

from devshim_backends._tensorflow.simulation.native_names.names import shown_name

__all__ = ["show_dumps", "show_metadata"]

_FOLDERS, _SCHEME = "_tfdbg_device_*device_CPU_*", "file://"
_SIMULATED = re.compile(r"device_CPU_([1-9]\d*)$")
_DEVICES = ("send_device", "recv_device")
"""The attributes of operators that copy between devices."""


def show_metadata(run_metadata: Any) -> None:
    """Change the names of devices in a ``RunMetadata``, or do nothing for None."""
    if run_metadata is not None:
        for step in run_metadata.step_stats.dev_stats:
            step.device = shown_name(step.device)
        for graph in run_metadata.partition_graphs:
            _show_graph(graph)


def show_dumps(options: Any) -> None:
    """Change the names of devices in the files that a run with these ``RunOptions`` has written, and their folders."""
    urls = {url for watch in options.debug_options.debug_tensor_watch_opts for url in watch.debug_urls}
    for root in (Path(url.removeprefix(_SCHEME)) for url in urls if url.startswith(_SCHEME)):
        for folder in root.glob(_FOLDERS):
            shown = _SIMULATED.sub(lambda found: f"device_GPU_{int(found[1]) - 1}", folder.name)
            for file in [each for each in folder.rglob("*") if each.is_file()]:
                target = root / shown / file.relative_to(folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(_show_event(file.read_bytes()))
                file.replace(target)
            if shown != folder.name:
                rmtree(folder)


def _show_event(content: bytes) -> bytes:
    event = event_pb2.Event.FromString(content)
    if event.graph_def:
        graph = tf.compat.v1.GraphDef.FromString(event.graph_def)
        _show_graph(graph)
        event.graph_def = graph.SerializeToString()
    for value in event.summary.value:
        about = json.loads(value.metadata.plugin_data.content or "{}")
        if "device" in about:
            about["device"] = shown_name(about["device"])
            value.metadata.plugin_data.content = json.dumps(about, separators=(",", ":")).encode()
    return bytes(event.SerializeToString())


def _show_graph(graph: Any) -> None:
    for node in graph.node:
        node.device = shown_name(node.device)
        for name in _DEVICES:
            if name in node.attr:
                node.attr[name].s = shown_name(node.attr[name].s.decode()).encode()
