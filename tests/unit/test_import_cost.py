"""Tests of the cost of `import devshim`, and of the number of our frames between a public call and the framework."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import devshim as ds

FRAMEWORKS = ("torch", "tensorflow", "mxnet", "paddle", "jax", "jaxlib", "keras", "cupy")
HEAVY = (
    "numpy",
    "optree",
    "rich",
    "click",
    "argparse",
    "pynvml",
    "dataclasses",
    "typing",
    "re",
    "enum",
    "asyncio",
    "threading",
)
SLOW = ("ctypes", "importlib.metadata", "inspect", "logging", "traceback", "functools", "devshim_backends")

FROM_THE_START = {
    "devshim._compiler_marks",
    "devshim._lazy",
    "devshim._version",
    "devshim.devices",
    "devshim.errors.types",
    "devshim.transfers",
    "devshim.world",
    "devshim.errors.formatting",
    "devshim.devices.parsing",
    "devshim.devices.device",
    "devshim.errors",
}
"""Devices and errors; everything else is loaded when it is used."""

LOADED = """
import sys
before = set(sys.modules)
import devshim as ds
print(*sorted(set(sys.modules) - before))
"""


def test_import_loads_neither_numpy_nor_a_framework_nor_what_is_slow(python: Callable[..., str]) -> None:
    loaded = set(python(LOADED, flags=("-S",)).split())
    assert "devshim" in loaded
    assert not {name for name in loaded if name.partition(".")[0] in FRAMEWORKS}
    assert not loaded & {*HEAVY, *SLOW}
    assert {name for name in loaded if name.startswith("devshim.")} == FROM_THE_START


@pytest.mark.parametrize("name", ["place", "on", "Placement", "simulate"])
def test_a_call_brings_what_it_needs(python: Callable[..., str], name: str) -> None:
    """This holds as an attribute and by name; the module behind `ds.device` does not replace it."""
    reported = python(f"""
        import devshim as ds
        from devshim import {name}
        assert {name} is ds.{name}
        import devshim.devices.device, devshim.placement, devshim.runtime.scopes, devshim.simulation, devshim.random
        assert {name} is ds.{name}
        print(ds.device("cuda:1"))
    """)
    assert reported == "gpu:1\n"


def test_what_a_public_name_needs_is_loaded_when_it_is_named(python: Callable[..., str]) -> None:
    reported = python("""
        import sys
        import devshim as ds
        assert not [name for name in ds.__all__ if name not in dir(ds)]
        assert "numpy" not in sys.modules
        ds.device("cuda:1"), ds.gpu(3), str(ds.cpu()), ds.use("numpy"), ds.on("gpu:1"), ds.using("numpy"), ds.explain()
        assert "numpy" not in sys.modules, "choosing a framework must not import it"
        assert all(getattr(ds, name) is not None for name in ds.__all__)
        assert not [name for name in sys.modules if name in ("torch", "tensorflow", "jax", "paddle", "mxnet")]
        try:
            ds.nothing
        except AttributeError as error:
            print(error)
    """)
    assert "has no attribute 'nothing'" in reported


def test_backends_and_device_count_import_nothing_else(python: Callable[..., str]) -> None:
    python(
        f"""
        import sys
        import devshim as ds
        ds.backends()
        assert "numpy" not in sys.modules
        ds.use("numpy")
        assert ds.device_count() == 0
        assert not [name for name in {FRAMEWORKS} if name in sys.modules]
        """
    )


def test_report_of_the_cost(python: Callable[..., str], capfd: pytest.CaptureFixture[str]) -> None:
    """It is shown, not judged: a busy machine is not a defect."""
    report = python("import sys; sys.stderr = sys.stdout\nimport devshim", flags=("-X", "importtime"))
    with capfd.disabled():
        print("\n" + "\n".join(line for line in report.splitlines() if "devshim" in line))


def frames_to_numpy(call: Callable[[], Any]) -> int:
    """Return the largest number of our frames on the stack when a NumPy function is called."""
    ours = tuple(str(Path(sys.modules[name].__path__[0])) for name in ("devshim", "devshim_backends"))
    most = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal most
        owner = getattr(argument, "__self__", None)
        if event != "c_call" or not (str(getattr(argument, "__module__", "")).startswith("numpy") or is_numpys(owner)):
            return
        count, at = 0, frame
        while at is not None:
            count += at.f_code.co_filename.startswith(ours)
            at = at.f_back  # type: ignore[assignment]
        most = max(most, count)

    call()  # what is loaded at first use is not counted
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return most


def is_numpys(owner: object) -> bool:
    return isinstance(owner, (np.ndarray, np.random.RandomState)) or type(owner).__module__.startswith("numpy")


CALLS: dict[str, Callable[[Any], Any]] = {
    "place": lambda x: ds.place(x, "cpu", copy=True),
    "copy": lambda x: ds.copy(x, "cpu"),
    "to_numpy": lambda x: ds.to_numpy(x),
    "from_numpy": lambda x: ds.from_numpy(np.ones(3)),
    "asarray of numbers": lambda x: ds.asarray([1, 2]),
    "asarray of a tensor": lambda x: ds.asarray(x, copy=True),
    "empty": lambda x: ds.empty(3),
    "zeros": lambda x: ds.zeros(3, dtype="float32"),
    "ones": lambda x: ds.ones(3),
    "full": lambda x: ds.full(3, 7),
    "arange": lambda x: ds.arange(3),
    "linspace": lambda x: ds.linspace(0, 1, 3),
    "eye": lambda x: ds.eye(3),
    "zeros_like": lambda x: ds.zeros_like(x),
    "full_like": lambda x: ds.full_like(x, 2),
    "uniform": lambda x: ds.random.uniform(0, 1, 3, dtype="float32"),  # the profiler does not see NumPy's own draws
    "normal": lambda x: ds.random.normal(0, 1, 3, dtype="float32"),
}


@pytest.mark.parametrize("name", CALLS)
def test_three_frames_at_most_to_the_framework(name: str) -> None:
    x = ds.zeros((2, 3))
    assert 1 <= frames_to_numpy(lambda: CALLS[name](x)) <= 3


def test_the_count_sees_a_longer_way() -> None:
    """A tree needs more frames, but only once for all its tensors."""
    assert frames_to_numpy(lambda: ds.place({"x": [np.ones(2)]}, "cpu", copy=True)) > 3


def test_asking_where_a_tensor_is_takes_two_frames(fake: Any) -> None:
    seen: list[int] = []
    x = fake.to_device(np.zeros(1), ds.gpu(1))

    def device_of(self: Any, x: Any) -> ds.Device:
        frame, count = sys._getframe(1), 0
        while frame is not None and frame.f_code.co_filename.startswith(str(Path(ds.__file__).parent)):
            count, frame = count + 1, frame.f_back  # type: ignore[assignment]
        seen.append(count)
        return ds.gpu(1)

    type(fake).device_of, kept = device_of, type(fake).device_of
    try:
        assert ds.device_of(x) is ds.gpu(1)
        assert ds.place(x, "gpu:1") is x
    finally:
        type(fake).device_of = kept
    assert seen[-2:] == [1, 1]
