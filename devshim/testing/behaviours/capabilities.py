"""Tests of a backend's declarations: gaps with true reasons, calls into a gap that raise, and native code lines."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import devshim as ds
from devshim.contract.backend import FEATURES, Backend
from devshim.devices.device import CPU
from devshim.registry import discovery, registry
from devshim.testing.base import Kit
from devshim.testing.values import FEATURE_OF, feature, hook

SNIPPETS = (
    *("device_count", "device_of", "place", "copy", "to_numpy", "from_numpy", "asarray", "zeros", "ones", "full"),
    *("empty", "arange", "linspace", "eye", "uniform", "normal", "seed", "on", "set_device", "run", "synchronize"),
    *("memory", "empty_cache", "convert", "try_gpu", "dtype", "devices", "describe", "memory_policy"),
    *("memory_fraction", "split", "gather", "all_reduce", "save", "load", "metric_append", "metric_flush", "stack"),
    *("bernoulli", "dtype_of", "permutation", "randint"),
)
"""The calls for which a backend has a native line."""
MODEL_LINES = (
    *(f"{call}_{kind}" for call in ("place", "copy", "save", "load") for kind in ("model", "optimizer")),
    *("place_parameter", "device_of_model"),
)
"""Calls that also have a native line, unless models are a declared gap."""


def _make_each(of: str) -> None:
    """Make a tensor of each dtype of a feature: those that exist are exact, and the first one that is missing raises.

    Some libraries have only the narrow ones of a feature.
    """
    for dtype, name in FEATURE_OF.items():
        if name == of:
            assert ds.dtype_of(ds.zeros(2, dtype=dtype)) == dtype


REFUSALS: dict[str, Callable[[], object]] = {
    "simulate": lambda: ds.simulate(gpus=2),
    "simulate_memory": lambda: ds.simulate(gpus=2, memory="1GiB"),
    "memory_policy": lambda: ds.memory_policy("grow"),
    "generator": lambda: ds.random.Generator(0),
    "namespace": lambda: ds.namespace(),
    **{name: (lambda name=name: _make_each(name)) for name in FEATURE_OF.values()},  # type: ignore[misc]
}
"""The call that runs into each gap; a gap in a feature without a call appears only in the support table."""


class CapabilityTests(Kit):
    """The declarations of a backend are true."""

    def test_the_adapter_has_the_requested_name(self) -> None:
        """The adapter has the framework's import name, and the name as its authors write it."""
        assert isinstance(self.adapter, Backend)
        assert self.adapter.name == self.backend
        assert self.adapter.title.lower().startswith(self.adapter.title[:2].lower())
        assert not inspect.isabstract(type(self.adapter))

    def test_gaps_are_declared_properly(self) -> None:
        """A gap names an existing feature, is planned, upstream or never, and has a reason."""
        for name, gap in self.adapter.gaps.items():
            assert name in FEATURES
            assert gap.kind in ("planned", "upstream", "never")
            assert len(gap.reason.split()) >= 3
            assert not gap.reason.endswith(".")
            assert not gap.instead.endswith(".")

    def test_a_backend_of_devshim_declares_all_its_gaps(self) -> None:
        """An adapter that ships with devshim defines each optional method, or declares the gap itself."""
        if self.backend in discovery.BUILTIN:
            assert dict(self.adapter.gaps) == dict(registry.gaps(self.backend))

    @pytest.mark.parametrize("name", sorted(REFUSALS))
    def test_a_gap_is_refused_with_its_reason(self, name: str) -> None:
        """A call into a declared gap raises, and the error gives the reason."""
        gap = self.adapter.gaps.get(name)
        if gap is None:
            return
        with pytest.raises((ds.UnsupportedError, ds.ConversionError)) as caught:
            REFUSALS[name]()
        assert caught.value.hint
        assert gap.instead in caught.value.hint
        if isinstance(caught.value, ds.UnsupportedError):
            larger = self.adapter.gaps.get("simulate", gap) if name == "simulate_memory" else gap
            assert gap.reason in caught.value.problem or larger.reason in caught.value.problem

    @hook("model")
    def test_a_model_is_refused_where_models_are_a_gap(self) -> None:
        """A model is never ignored as if it had moved."""
        if "models" not in self.adapter.gaps:
            return
        for tree in (self.model(), [self.model()]):
            with pytest.raises(ds.UnsupportedError):
                ds.place(tree, "cpu")

    def test_overrides_fit_the_contract(self) -> None:
        """Every method takes the contract's parameters, with the same names in the same order."""
        for name, promised in inspect.getmembers(Backend, inspect.isfunction):
            written = inspect.signature(getattr(type(self.adapter), name))
            assert list(written.parameters) == list(inspect.signature(promised).parameters), name

    @feature("explain")
    def test_every_call_has_a_native_line(self) -> None:
        """Each call has a template, and each template can be filled in."""
        models = () if "models" in self.adapter.gaps else MODEL_LINES
        assert sorted(self.adapter.snippets) == sorted((*SNIPPETS, *models))
        fields: dict[str, Any] = {"x": "x", "device": "D", "index": 1, "args": "a", "dtype": "", "path": "'p'"}
        fields |= {"devices": "[D]", "count": 1, "sizes": "[1]", "axis": 0, "op": "sum", "reduced": "sum"}
        for call, template in self.adapter.snippets.items():
            filled = template.format(name="float32") if call == "dtype" else template.format(*"0123", **fields)
            assert filled.strip(), call

    def test_devices_have_a_native_text(self) -> None:
        """Each device is written as a user of the framework writes it."""
        texts = [self.adapter.native_text(device) for device in (CPU, ds.gpu(0), ds.gpu(1))]
        assert all(texts)
        assert len(set(texts)) == 3
