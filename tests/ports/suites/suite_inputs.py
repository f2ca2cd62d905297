"""Backends of POT and TensorLy that put what the *tests* create on ``gpu:1``.

What the projects create themselves, they place with their own device code, or with that of ``examples/ports``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import devshim as ds

DEVICE = "gpu:1"
POT_CREATES = ("from_numpy", "zeros", "ones", "eye", "full", "arange", "linspace", "rand", "randn")
TENSORLY_CREATES = ("tensor", "zeros", "ones", "eye", "arange", "randn")
INPUTS = ("tensorly/random", "tensorly/datasets")
"""Packages of TensorLy that create the inputs of tests."""


def install(project: str, name: str, ported: bool) -> None:
    """Change the backends of a project."""
    if project == "pot":
        if ported:
            importlib.import_module("examples.ports.pot_devices").install()
        elif name == "torch":
            _answer_for_cuda()
        return
    import tensorly

    if ported:
        importlib.import_module("examples.ports.tensorly_devices").install(name)
    else:
        tensorly.set_backend(name)
    tensorly.set_backend(_of_tensorly(type(tensorly.backend.BackendManager.current_backend()), name)())


def _answer_for_cuda() -> None:
    """Answer what POT's PyTorch backend asks CUDA as a real GPU would: the type of a device, and a generator."""
    import torch
    from ot.backend import TorchBackend, get_backend_list

    TorchBackend.device_type = lambda self, type_as: ds.device(type_as.device).kind.upper()
    for backend in get_backend_list():
        if isinstance(backend, TorchBackend):
            backend.rng_cuda_ = torch.Generator(ds.device(DEVICE).native("torch"))


# ---------------------------------------------------------------------- POT: the fixture `nx` of its tests
def with_inputs_on_gpu(backend: Any) -> Any:
    """Return a backend of POT only for tests: tensors that it creates without ``type_as`` are on ``gpu:1``."""
    cls = type(backend)
    body = {each: _unless_like(getattr(cls, each)) for each in POT_CREATES}
    made = object.__new__(type(cls.__name__, (cls,), body))
    made.__dict__.update(vars(backend))
    made.__type_list__ = [ds.place(each, DEVICE) for each in backend.__type_list__]
    return made


def _unless_like(method: Any) -> Any:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def create(*args: Any, **kwargs: Any) -> Any:
        made = method(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments.get("type_as")
        return made if given is not None else _placed(made)

    return create


def _placed(made: Any) -> Any:
    """Return tensors on ``gpu:1``; what is not a tensor, such as a sparse matrix of SciPy, as it is."""
    if isinstance(made, list):
        return [_placed(each) for each in made]
    try:
        return ds.place(made, DEVICE)
    except ds.NotATensorError:
        return made


# ---------------------------------------------------------------------- TensorLy: creation functions
def _of_tensorly(cls: Any, name: str) -> Any:
    body = {}
    for each in TENSORLY_CREATES:
        create = _in_tests(getattr(cls, each))
        takes_self = inspect.isfunction(inspect.getattr_static(cls, each))
        body[each] = create if takes_self else staticmethod(create)
    return type(cls.__name__, (cls,), body, backend_name=name)


def _in_tests(function: Any) -> Any:
    @functools.wraps(function)
    def create(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        return _placed(made) if kwargs.get("device") is None and _called_by_a_test() else made

    return create


def _called_by_a_test() -> bool:
    """Return True if a test called this function, directly or by way of TensorLy's random tensors and data sets."""
    frame = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        folder = "/".join(path.parts[-3:-1])
        if folder not in INPUTS and path.parts[-3:] != ("tensorly", "backend", "__init__.py"):
            return path.name.startswith("test_")
        frame = frame.f_back  # type: ignore[assignment]
    return False
