"""The conformance kit on toyframe: undamaged, and once for each defect; run by ``test_kit_can_fail.py``.

A defect is a function that damages one thing: the adapter, the framework, or the neutral half of devshim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import toyframe

import devshim as ds
from devshim.contract.fast_paths import FastPaths
from devshim.registry import current, default_devices, registry
from devshim.tensors import on_host, placing
from devshim.testing import Conformance
from devshim.transfers import engine, observing


@pytest.fixture(scope="class", autouse=True)
def _repaired() -> Iterator[None]:
    """Undo a defect after its class."""
    yield
    toyframe.SETTINGS["default_dtype"] = "float32"


class TestHealthy(Conformance):
    backend = "toyframe"

    def gradient(self, fn: Any, x: Any) -> Any:
        leaf = self.trainable(x)
        y = fn(leaf)
        y.backward(2 * y.data)
        return leaf.grad

    def compiled(self, fn: Any) -> Any:
        return fn

    def compilers(self) -> dict[str, tuple[Callable[..., Any], bool]]:
        return {"compiled": (self.compiled, False)}

    def trainable(self, x: Any) -> Any:
        leaf = toyframe.Tensor(x.data.copy(), x.card)
        leaf.requires_grad = True
        return leaf

    def is_trainable(self, x: Any) -> bool:
        return bool(x.requires_grad)

    def native_zeros(self) -> Any:
        return toyframe.zeros((2, 2))

    def global_state(self) -> object:
        return dict(toyframe.SETTINGS), toyframe.default()


Patch = pytest.MonkeyPatch
DEFECTS: dict[str, Callable[[Patch, Any], None]] = {}


def defect(damage: Callable[[Patch, Any], None]) -> Callable[[Patch, Any], None]:
    DEFECTS[damage.__name__] = damage
    return damage


@defect
def place_copies_at_home(patch: Patch, adapter: Any) -> None:
    patch.setattr(ds, "place", lambda x, *args, **kwargs: placing.place(x, *args, **kwargs | {"copy": True}))


@defect
def copy_aliases(patch: Patch, adapter: Any) -> None:
    patch.setattr(
        adapter, "copy_to", lambda x, d, nb=False: toyframe.Tensor(x.data, adapter.to_native(d), [(x, lambda g: g)])
    )


@defect
def copy_is_the_same_object(patch: Patch, adapter: Any) -> None:
    proper = adapter.copy_to
    patch.setattr(adapter, "copy_to", lambda x, d, nb=False: x if adapter.device_of(x) is d else proper(x, d))


@defect
def copy_drops_the_last_bit(patch: Patch, adapter: Any) -> None:
    def copy_to(x: Any, d: Any, nb: bool = False) -> Any:
        data = x.data.copy()
        if data.dtype == np.float32:
            data.view(np.uint32)[...] &= 0xFFFFFFFE
        return toyframe.Tensor(data, adapter.to_native(d), [(x, lambda g: g)])

    patch.setattr(adapter, "copy_to", copy_to)


@defect
def lands_elsewhere(patch: Patch, adapter: Any) -> None:
    patch.setattr(adapter, "to_native", lambda d: toyframe.Card(0) if d.kind == "gpu" else toyframe.HOST)


@defect
def missing_device_falls_back(patch: Patch, adapter: Any) -> None:
    patch.setattr(engine, "require", lambda backend, d: d if d.index < backend.count(d.kind) else ds.cpu())
    proper = adapter.to_native
    patch.setattr(adapter, "to_native", lambda d: proper(d) if d.index < adapter.simulated else toyframe.HOST)


@defect
def gradient_is_cut(patch: Patch, adapter: Any) -> None:
    patch.setattr(adapter, "copy_to", lambda x, d, nb=False: toyframe.Tensor(x.data.copy(), adapter.to_native(d)))


@defect
def gradient_flag_is_lost_at_home(patch: Patch, adapter: Any) -> None:
    proper = adapter.copy_to

    def copy_to(x: Any, d: Any, nb: bool = False) -> Any:
        return toyframe.Tensor(x.data.copy(), x.card) if adapter.device_of(x) is d else proper(x, d)

    patch.setattr(adapter, "copy_to", copy_to)


@defect
def dtype_drifts(patch: Patch, adapter: Any) -> None:
    proper, narrow = adapter.from_numpy, {"float64": "float32", "int64": "int32"}
    patch.setattr(
        adapter, "from_numpy", lambda a, d, copy: proper(a.astype(narrow.get(a.dtype.name, a.dtype)), d, copy)
    )


@defect
def bool_becomes_uint8(patch: Patch, adapter: Any) -> None:
    proper = adapter.from_numpy
    patch.setattr(adapter, "from_numpy", lambda a, d, copy: proper(a.view(np.uint8) if a.dtype == bool else a, d, copy))


@defect
def from_numpy_aliases(patch: Patch, adapter: Any) -> None:
    patch.setattr(adapter, "from_numpy", lambda a, d, copy: toyframe.Tensor(a, adapter.to_native(d)))


@defect
def from_numpy_aliases_aligned_memory(patch: Patch, adapter: Any) -> None:
    proper = adapter.from_numpy
    patch.setattr(adapter, "from_numpy", lambda a, d, copy: proper(a, d, copy and a.ctypes.data % 64 != 0))


@defect
def from_numpy_forgets_strides(patch: Patch, adapter: Any) -> None:
    def from_numpy(a: Any, d: Any, copy: bool) -> Any:
        flat = np.ndarray(a.shape, a.dtype, np.ascontiguousarray(a[::-1] if a.ndim and a.strides[0] < 0 else a))
        return toyframe.Tensor(flat.copy(), adapter.to_native(d))

    patch.setattr(adapter, "from_numpy", from_numpy)


@defect
def to_numpy_aliases(patch: Patch, adapter: Any) -> None:
    patch.setattr(adapter, "to_numpy", lambda x, copy: x.data)


@defect
def to_numpy_is_read_only(patch: Patch, adapter: Any) -> None:
    def to_numpy(x: Any, copy: bool) -> Any:
        a = x.data.copy()
        a.setflags(write=not copy)
        return a

    patch.setattr(adapter, "to_numpy", to_numpy)


@defect
def on_is_ignored_by_creation(patch: Patch, adapter: Any) -> None:
    patch.setattr(current, "default_device", ds.cpu)


@defect
def on_is_ignored_by_the_framework(patch: Patch, adapter: Any) -> None:
    from contextlib import nullcontext

    patch.setattr(adapter, "scope", nullcontext)


@defect
def on_survives_an_exception(patch: Patch, adapter: Any) -> None:
    proper = ds.on.__exit__
    patch.setattr(ds.on, "__exit__", lambda self, *failure: None if failure[0] else proper(self, *failure))


@defect
def on_is_not_nested(patch: Patch, adapter: Any) -> None:
    proper = ds.on.__exit__

    def leave(self: Any, *failure: Any) -> None:
        proper(self, *failure)
        default_devices.DEFAULT.set(None)

    patch.setattr(ds.on, "__exit__", leave)


@defect
def scope_reaches_other_threads(patch: Patch, adapter: Any) -> None:
    import types

    patch.setattr(toyframe, "_default", types.SimpleNamespace())


@defect
def default_device_reaches_other_threads(patch: Patch, adapter: Any) -> None:
    class Everywhere:
        value: Any = None

        def get(self) -> Any:
            return self.value

        def set(self, value: Any) -> Any:
            before, self.value = self.value, value
            return before

        def reset(self, token: Any) -> None:
            self.value = token

    patch.setattr(default_devices, "DEFAULT", Everywhere())


@defect
def seed_is_ignored(patch: Patch, adapter: Any) -> None:
    patch.setattr(adapter, "seed", lambda value: None)


@defect
def uniform_reaches_its_bound(patch: Patch, adapter: Any) -> None:
    def uniform(low: float, high: float, shape: Any, dtype: Any, device: Any, seed: int | None = None) -> Any:
        return adapter._new(np.full(shape, high, adapter._float(dtype)), device)

    patch.setattr(adapter, "uniform", uniform)


@defect
def draws_repeat(patch: Patch, adapter: Any) -> None:
    proper = adapter.uniform

    def uniform(*args: Any) -> Any:
        toyframe.GENERATOR[0] = np.random.default_rng(5)
        return proper(*args)

    patch.setattr(adapter, "uniform", uniform)


@defect
def device_of_lies(patch: Patch, adapter: Any) -> None:
    patch.setattr(adapter, "device_of", lambda x: ds.cpu() if x.card.number < 1 else ds.gpu(1))


@defect
def mixing_is_not_refused(patch: Patch, adapter: Any) -> None:
    patch.setattr(
        toyframe.Tensor, "_other", lambda self, other: toyframe.Tensor(getattr(other, "data", other), self.card)
    )


@defect
def run_does_not_look(patch: Patch, adapter: Any) -> None:
    patch.setattr(ds, "run", lambda fn, *args, **kwargs: fn(*args, **kwargs))


@defect
def trees_are_always_rebuilt(patch: Patch, adapter: Any) -> None:
    from devshim.trees import trees

    proper = trees.place
    patch.setattr(trees, "place", lambda *args: {**found} if type(found := proper(*args)) is dict else found)


@defect
def shared_tensors_are_torn_apart(patch: Patch, adapter: Any) -> None:
    def place(x: Any, *args: Any, **kwargs: Any) -> Any:
        if type(x) in (list, dict):
            parts = x.items() if type(x) is dict else enumerate(x)
            moved = {key: place(part, *args, **kwargs) for key, part in parts}
            return moved if type(x) is dict else list(moved.values())
        return placing.place(x, *args, **kwargs)

    patch.setattr(ds, "place", place)
    patch.setattr(ds, "copy", lambda x, d: place(x, d, copy=True))


@defect
def simulation_is_hidden(patch: Patch, adapter: Any) -> None:
    from devshim.devices.info import DeviceInfo

    patch.setattr(adapter, "describe", lambda d: DeviceInfo(d, "Tesla T4", "toyframe", 2**34))


@defect
def counting_raises_for_absence(patch: Patch, adapter: Any) -> None:
    patch.setattr(adapter, "count", lambda kind: {"cpu": 1, "gpu": adapter.simulated}[kind])


@defect
def asarray_ignores_the_device(patch: Patch, adapter: Any) -> None:
    proper = adapter.asarray
    patch.setattr(adapter, "asarray", lambda values, dtype, d: proper(values, dtype, ds.cpu()))


@defect
def creation_takes_the_first_card(patch: Patch, adapter: Any) -> None:
    patch.setattr(current, "default_device", lambda: default_devices.innermost() or ds.gpu(0))
    patch.setattr(on_host, "make", lambda *args: None)


@defect
def wide_integers_go_through_floats(patch: Patch, adapter: Any) -> None:
    proper = adapter.full
    patch.setattr(
        adapter, "full", lambda shape, v, dtype, d: proper(shape, float(v) if type(v) is int else v, dtype, d)
    )


@defect
def global_state_is_changed(patch: Patch, adapter: Any) -> None:
    proper = adapter.zeros

    def zeros(shape: Any, dtype: Any, device: Any) -> Any:
        if device.kind == "gpu":
            toyframe.SETTINGS["default_dtype"] = "float64"
        return proper(shape, dtype, device)

    patch.setattr(adapter, "zeros", zeros)


@defect
def a_line_is_missing(patch: Patch, adapter: Any) -> None:
    patch.setattr(adapter, "snippets", {**adapter.snippets, "copy": " "})


@defect
def a_gap_is_not_refused(patch: Patch, adapter: Any) -> None:
    from devshim.runtime import memory

    patch.setattr(memory, "memory_policy", lambda policy: None)
    patch.setattr(ds, "memory_policy", memory.memory_policy, raising=False)


@defect
def a_gap_has_no_reason(patch: Patch, adapter: Any) -> None:
    from devshim.contract.backend import Gap

    patch.setattr(adapter, "gaps", {**adapter.gaps, "simulate_memory": Gap("planned", "")})


@defect
def empty_cache_fails_for_absence(patch: Patch, adapter: Any) -> None:
    from devshim.runtime import memory

    def empty_cache(device: Any = None) -> None:
        raise RuntimeError("no CUDA")

    patch.setattr(memory, "empty_cache", empty_cache)
    patch.setattr(ds, "empty_cache", empty_cache, raising=False)


@defect
def native_devices_do_not_come_back(patch: Patch, adapter: Any) -> None:
    patch.setattr(adapter, "from_native", lambda native: ds.cpu())


@defect
def convert_shares_when_asked_to_copy(patch: Patch, adapter: Any) -> None:
    patch.setattr(adapter, "from_numpy", lambda a, d, copy: toyframe.Tensor(a, adapter.to_native(d)))
    patch.setattr(engine, "to_host", lambda backend, x, copy: backend.to_numpy(x, copy=False))


@defect
def memory_is_shared_at_any_address(patch: Patch, adapter: Any) -> None:
    from devshim.transfers import alignment

    patch.setattr(alignment, "alignment_problem", lambda *about: None)


@defect
def a_short_cut_gives_another_dtype(patch: Patch, adapter: Any) -> None:
    from devshim.interop import convert as convert_module

    patch.setattr(convert_module, "_FAST_PATHS", {})
    changed = FastPaths(numpy_view={toyframe.Tensor: lambda x: x.data.astype("complex128")})
    patch.setattr(adapter, "fast_paths", changed)


@defect
def a_short_cut_ignores_the_device(patch: Patch, adapter: Any) -> None:
    convert = ds.convert
    patch.setattr(ds, "convert", lambda x, backend=None, device=None, copy=None: convert(x, backend, copy=copy))


@defect
def conversions_are_not_reported(patch: Patch, adapter: Any) -> None:
    convert = ds.convert

    def unreported(*args: Any, **options: Any) -> Any:
        with Patch.context() as inside:
            inside.setattr(observing, "ACTIVE", None)
            return convert(*args, **options)

    patch.setattr(ds, "convert", unreported)


@defect
def place_is_ignored_while_compiling(patch: Patch, adapter: Any) -> None:
    def compiled(self: Any, fn: Any) -> Any:
        def traced(*args: Any) -> Any:
            with Patch.context() as inside:
                inside.setattr(ds, "place", lambda x, d: x)
                return fn(*args)

        return traced

    patch.setattr(TestHealthy, "compiled", compiled)


def _class(damage: Callable[[Patch, Any], None]) -> type:
    @pytest.fixture(autouse=True)
    def _damaged(self: Any, _around: None, monkeypatch: Patch) -> None:
        damage(monkeypatch, registry.load("toyframe"))

    return type(f"Test_{damage.__name__}", (TestHealthy,), {"_damaged": _damaged, "__module__": __name__})


globals().update({f"Test_{name}": _class(damage) for name, damage in DEFECTS.items()})
