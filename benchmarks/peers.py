"""Other libraries that do part of what devshim does, and how a user writes it with them.

A peer is imported when it is first requested. If it is missing or does not work, the page names it with the reason.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class Peer:
    """A library.

    Args:
        name: Its usual name.
        module: The name by which it is imported.
        backends: The backends of devshim that it supports; it is not compared on the others.
        begin: Imports it, sets it to a backend, and returns the names that statements can use.
        place: A statement that places ``x`` on the CPU, where it is already.
        where: A statement that returns the device of ``x``.
        host: A statement that returns the values of ``x`` as a NumPy array over the same memory.
        tree: A statement that moves a ``tree`` of tensors to the CPU.
        broken: A backend -> why the library does not work there.
    """

    name: str
    module: str
    backends: frozenset[str]
    begin: Callable[[str], dict[str, Any]]
    place: str = ""
    where: str = ""
    host: str = ""
    tree: str = ""
    broken: Mapping[str, str] = field(default_factory=dict)


def _keras(backend: str) -> dict[str, Any]:
    os.environ["KERAS_BACKEND"] = backend
    import keras

    return {"keras": keras}


def _array_api_compat(backend: str) -> dict[str, Any]:
    import array_api_compat

    return {"array_api_compat": array_api_compat}


def _accelerate(backend: str) -> dict[str, Any]:
    from accelerate.utils import send_to_device

    return {"send_to_device": send_to_device}


def _ivy(backend: str) -> dict[str, Any]:
    here = os.getcwd()
    os.chdir(tempfile.mkdtemp())  # importing it creates a log file in the current folder
    try:
        import ivy
    finally:
        os.chdir(here)
    ivy.set_backend(backend)
    return {"ivy": ivy}


def _eagerpy(backend: str) -> dict[str, Any]:
    import eagerpy

    return {"eagerpy": eagerpy}


_IVY = {
    "tensorflow": "ivy 1.0.0.5: every call ends in its to_numpy, 'only 0-dimensional arrays can be converted' (2.21)",
    "jax": "ivy 1.0.0.5 asks for flax, and with it for jax.interpreters.batching.BatchTracer, which JAX 0.10 lacks",
    "mxnet": "ivy 1.0.0.5 reads the version number 2.0.0b1 as whole numbers, and on 1.9.1 recurses without end",
}

PEERS = (
    Peer(
        "keras",
        "keras",
        frozenset({"torch", "tensorflow", "jax"}),
        _keras,
        place="with keras.device('cpu'): keras.ops.convert_to_tensor(x)",
    ),
    Peer(
        "array_api_compat",
        "array_api_compat",
        frozenset({"numpy", "torch", "jax"}),
        _array_api_compat,
        place="array_api_compat.to_device(x, n)",
        where="array_api_compat.device(x)",
    ),
    Peer(
        "accelerate",
        "accelerate",
        frozenset({"torch"}),
        _accelerate,
        place="send_to_device(x, n)",
        tree="send_to_device(tree, n)",
    ),
    Peer(
        "ivy",
        "ivy",
        frozenset({"numpy", "torch", "tensorflow", "jax", "paddle", "mxnet"}),
        _ivy,
        place="ivy.to_device(x, 'cpu')",
        where="ivy.dev(x)",
        broken=_IVY,
    ),
    Peer(
        "eagerpy",
        "eagerpy",
        frozenset({"numpy", "torch", "tensorflow", "jax"}),
        _eagerpy,
        host="eagerpy.astensor(x).numpy()",
    ),
)
"""The libraries that are compared; eagerpy has no devices, so only its reading of a tensor's values is timed."""


def import_peers(backend: str) -> tuple[dict[Peer, dict[str, Any]], dict[str, str]]:
    """Import the peers that support a backend.

    Returns:
        The names that each peer's statements can use, and why other peers are absent.
    """
    found: dict[Peer, dict[str, Any]] = {}
    absent: dict[str, str] = {}
    for peer in PEERS:
        if backend not in peer.backends:
            continue
        if why := peer.broken.get(backend):
            absent[peer.name] = why
            continue
        try:
            found[peer] = peer.begin(backend)
        except Exception as error:  # the page shows a peer's own failure
            absent[peer.name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return found, absent
