"""A program that compares a framework's attributes before and after native names were on: `python FILE jax`.

PyTorch has `torch_traces.py`, which compares more. This program compares by identity, in the framework's public
modules, those that native names change, and their classes.
Values that are equal numbers or texts are the same, and ``__slotnames__`` is a cache of Python.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import devshim as ds

MODULES = {
    "tensorflow": "tensorflow tensorflow.config tensorflow.config.experimental tensorflow.distribute tensorflow.test "
    "tensorflow.data tensorflow.debugging tensorflow.keras",
    "jax": "jax jax.numpy jax.lax jax.sharding jax.random jax._src.xla_bridge jax._src.api jax._src.dispatch "
    "jax._src.pjit jax._src.array",
    "paddle": "paddle paddle.device paddle.device.cuda paddle.amp paddle.amp.auto_cast paddle.base.core "
    "paddle.base.framework paddle.nn paddle.nn.functional paddle.jit paddle.distributed paddle.static paddle.io "
    "paddle._C_ops paddle.tensor paddle.framework",
    "mxnet": "mxnet mxnet.context mxnet.device mxnet.util mxnet.ndarray mxnet.gluon mxnet.gluon.utils mxnet.numpy "
    "mxnet.numpy_extension mxnet.runtime mxnet.random mxnet.kvstore mxnet.autograd mxnet.base",
}

USES = {
    "tensorflow": "tensorflow.device('/GPU:1').__enter__(); tensorflow.ones(2) + 1",
    "jax": "jax.jit(lambda x: x + 1)(jax.device_put(1.0, jax.devices('gpu')[1]))",
    "paddle": "paddle.set_device('gpu:1'); paddle.ones([2]).cuda(0) + 1; paddle.amp.auto_cast()",
    "mxnet": "mxnet.nd.ones((2,), mxnet.gpu(1)) + 1",
}
PLAIN = (int, float, str, bool, tuple, list, dict)


def attributes(framework: Any, modules: str) -> dict[str, Any]:
    """Return every attribute of the modules and of the framework's classes in them, by its name."""
    found: dict[str, Any] = {}
    for name in modules.split():
        owner = framework
        try:
            for part in name.split(".")[1:]:
                owner = getattr(owner, part)
        except AttributeError:  # a module of another version
            continue
        members = dict(vars(owner))
        found |= {f"{name}.{key}": value for key, value in members.items()}
        for key, value in members.items():
            if isinstance(value, type) and value.__module__.partition(".")[0] == name.partition(".")[0]:
                inside = {each: member for each, member in vars(value).items() if each != "__slotnames__"}
                found |= {f"{name}.{key}.{each}": member for each, member in inside.items()}
    return found


def main(name: str) -> None:
    """Switch native names on and off twice, and raise if an attribute is not as it was."""
    is_started_once = name in ("paddle", "tensorflow")
    if is_started_once:
        ds.simulate(2)
    framework = ds.framework(name)
    for module in MODULES[name].split():
        try:
            importlib.import_module(module)
        except ImportError:  # not its own module, or one of another version
            continue
    if not is_started_once:
        ds.simulate(2)  # registers what stays for the life of the process
        ds.simulate(0)
    with ds.simulate(2, native_names=True):  # imports and caches of the framework itself are filled at first use
        exec(USES[name], {name: framework})
    before = attributes(framework, MODULES[name])
    for visible in ("0,1", "0,1", "-1"):  # the last one hides all GPUs
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
        with ds.simulate(2, native_names=True):
            now = attributes(framework, MODULES[name])
            assert any(now.get(key) is not value for key, value in before.items()), "native names replace some"
            if ds.device_count():
                exec(USES[name], {name: framework})
        after = attributes(framework, MODULES[name])
        assert before.keys() == after.keys(), before.keys() ^ after.keys()
        changed = [key for key, value in before.items() if after[key] is not value]
        changed = [key for key in changed if not isinstance(before[key], PLAIN) or before[key] != after[key]]
        assert not changed, changed
    print(len(before), "attributes")


if __name__ == "__main__":
    main(*sys.argv[1:])
