"""Tests of random generators: `Generator` and portable draws, which are the same on every framework and device."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

DRAWS: dict[str, Callable[..., Tensor]] = {
    "uniform": lambda source, **kw: source.uniform(-2, 5, (3, 4), **kw),
    "normal": lambda source, **kw: source.normal(1, 2, (3, 4), **kw),
    "randint": lambda source, **kw: source.randint(-5, 100, (3, 4), **kw),
    "permutation": lambda source, **kw: source.permutation(30, **kw),
    "bernoulli": lambda source, **kw: source.bernoulli(0.4, (5, 6), **kw),
}
"""One draw of each kind, from a generator or from `devshim.random`."""

NONSENSE: dict[str, Callable[[], object]] = {
    "a negative seed": lambda: ds.random.Generator(-1, portable=True),
    "a seed too large": lambda: ds.random.Generator(2**64, portable=True),
    "a float as a seed": lambda: ds.random.Generator(1.5, portable=True),  # type: ignore[arg-type]
    "text as a flag": lambda: ds.random.Generator(0, portable="yes"),  # type: ignore[arg-type]
    "text as the flag of a seed": lambda: ds.random.seed(0, portable="yes"),  # type: ignore[arg-type]
    "an empty range": lambda: ds.random.randint(3, 3),
    "bounds the wrong way round": lambda: ds.random.randint(3, 1),
    "a float as a bound": lambda: ds.random.randint(2.5),  # type: ignore[arg-type]
    "a range too wide": lambda: ds.random.randint(-(2**53), 2**53),
    "a bound of 64 bits": lambda: ds.random.randint(2**63 - 4, 2**63),
    "portable integers of more than 64 bits": lambda: ds.random.Generator(0, portable=True).randint(-1, 2**63 + 1),
    "portable integers above the default dtype": lambda: ds.random.Generator(0, portable=True).randint(2**63 + 1),
    "a shape as a bound": lambda: ds.random.randint((2, 3)),  # type: ignore[arg-type]
    "integers in a floating dtype": lambda: ds.random.randint(9, dtype="float32"),
    "integers that do not fit": lambda: ds.random.randint(300, dtype="int8"),
    "a permutation that does not fit": lambda: ds.random.permutation(200, dtype="int8"),
    "a permutation of text": lambda: ds.random.permutation("ab"),  # type: ignore[arg-type]
    "a negative permutation": lambda: ds.random.permutation(-1),
    "a probability above 1": lambda: ds.random.bernoulli(1.5),
    "a negative probability": lambda: ds.random.bernoulli(-0.5),
    "NaN as a probability": lambda: ds.random.bernoulli(float("nan")),
    "a shape as a probability": lambda: ds.random.bernoulli((2, 3)),  # type: ignore[arg-type]
    "a mean too large for a float": lambda: ds.random.Generator(0, portable=True).normal(10**400, 1),
    "bounds too far apart": lambda: ds.random.Generator(0, portable=True).uniform(-3e38, 3e38),
    "floats in an integer dtype": lambda: ds.random.Generator(0, portable=True).normal(dtype="int32"),
    "a state without its other keys": lambda: ds.random.Generator(0, portable=True).set_state({"seed": 1}),
    "a negative state": lambda: ds.random.Generator(0, portable=True).set_state(
        {"seed": 1, "draws": -1, "portable": 1}
    ),
    "a state of another kind": lambda: ds.random.Generator(0, portable=True).set_state(
        {"seed": 1, "draws": 0, "portable": 0}
    ),
}


def values(x: Tensor) -> tuple[str, bytes]:
    """Return a tensor's dtype and bits."""
    a = ds.to_numpy(x)
    return str(a.dtype), a.tobytes()


class GeneratorTests(Kit):
    """`random.Generator`, `random.randint`, `random.permutation`, `random.bernoulli`, and portable seeds."""

    @pytest.fixture(autouse=True)
    def _native_afterwards(self) -> Iterator[None]:
        """Let the framework draw again after the test."""
        yield
        ds.random.seed(0)

    # ------------------------------------------------------------------ the functions
    @feature("random")
    @pytest.mark.parametrize("call", ["randint", "permutation", "bernoulli"])
    def test_draws_repeat_and_are_on_the_device(self, call: str, device: Device) -> None:
        """A seed repeats draws; they are on the requested device, and in the default dtype or the requested one."""
        make = DRAWS[call]
        ds.random.seed(5)
        first = [make(ds.random, device=device) for _ in range(2)]
        ds.random.seed(5)
        assert [values(x) for x in first] == [values(make(ds.random, device=device)) for _ in range(2)]
        assert values(first[0]) != values(first[1])
        assert {ds.device_of(x) for x in first} == {device}
        assert ds.dtype_of(first[0]) in (("bool",) if call == "bernoulli" else ("int32", "int64"))
        assert ds.dtype_of(make(ds.random, dtype="int8", device=device)) == "int8"
        x = make(ds.random, like=self.tensor(device, (), "int32"))
        assert (ds.dtype_of(x), ds.device_of(x)) == ("int32", device)

    @feature("random")
    @pytest.mark.parametrize("call", ["randint", "permutation", "bernoulli"])
    def test_draws_follow_the_scope(self, call: str, other_device: Device) -> None:
        """Without a device, they are on the CPU, and inside `on` on its device."""
        assert ds.device_of(DRAWS[call](ds.random)) is ds.cpu()
        with ds.on(other_device):
            assert ds.device_of(DRAWS[call](ds.random)) is other_device

    @feature("random")
    @pytest.mark.parametrize("call", DRAWS)
    def test_a_generator_draws_like_a_tensor(self, call: str, journey: tuple[Device, Device]) -> None:
        """With `like`, a draw has a tensor's dtype and device, and the same numbers; a generator's device comes first.

        The tensor decides which framework draws, too.
        """
        dtype = "int32" if call in ("randint", "permutation") else "float32"
        x, make = self.tensor(journey[0], (), dtype), DRAWS[call]
        plain = values(make(ds.random.Generator(5, portable=True), dtype=dtype))
        ds.use(None)
        y = make(ds.random.Generator(5, portable=True), like=x)
        assert (ds.dtype_of(y), ds.device_of(y), values(y)) == (dtype, journey[0], plain)
        ds.use(self.backend)
        elsewhere = make(ds.random.Generator(5, journey[1], portable=True), like=x)
        assert (ds.device_of(elsewhere), values(elsewhere)) == (journey[1], plain)

    @feature("random", "float64")
    @pytest.mark.parametrize("portable", [False, True])
    def test_integers_fill_their_range(self, portable: bool, device: Device) -> None:
        """`randint` draws every integer of the range about equally often, and no other; ranges may be wide."""
        ds.random.seed(3, portable=portable)
        a = ds.to_numpy(ds.random.randint(-2, 5, 7000, device=device))
        counts = [int((a == i).sum()) for i in range(-2, 5)]
        assert sum(counts) == 7000
        assert all(850 < count < 1150 for count in counts), counts
        assert set(ds.to_numpy(ds.random.randint(4, 5, 20, device=device)).tolist()) == {4}
        wide = ds.to_numpy(ds.random.randint(2**62, 2**62 + 2**50, 500, dtype="int64", device=device))
        assert 2**62 <= wide.min() <= wide.max() < 2**62 + 2**50
        assert abs(float((wide - 2**62).mean()) / 2**49 - 1) < 0.2
        assert len(set(wide.tolist())) == 500
        x = ds.random.randint(3, 5, (), dtype="int32", device=device)
        assert (ds.dtype_of(x), self.adapter.shape(x), ds.device_of(x)) == ("int32", (), device)

    @feature("random")
    @pytest.mark.parametrize("portable", [False, True])
    def test_a_permutation_contains_each_integer_once(self, portable: bool, device: Device) -> None:
        """`permutation` gives an order of the integers below n; each is equally likely at each position."""
        ds.random.seed(3, portable=portable)
        for n in (0, 1, 50):
            x = ds.random.permutation(n, device=device)
            assert ds.device_of(x) is device
            assert sorted(ds.to_numpy(x).tolist()) == list(range(n))
        first = [int(ds.to_numpy(ds.random.permutation(3, device=device))[0]) for _ in range(300)]
        assert all(60 < first.count(i) < 140 for i in range(3))

    @feature("random")
    @pytest.mark.parametrize("portable", [False, True])
    def test_bernoulli_has_its_probability(self, portable: bool, device: Device) -> None:
        """`bernoulli` is True with the requested probability, which may be 0, 1 or very small."""
        ds.random.seed(3, portable=portable)
        a = ds.to_numpy(ds.random.bernoulli(0.3, 5000, device=device))
        assert 1350 < int(a.sum()) < 1650
        assert not ds.to_numpy(ds.random.bernoulli(0, 100, device=device)).any()
        assert ds.to_numpy(ds.random.bernoulli(1, 100, device=device)).all()
        assert not ds.to_numpy(ds.random.bernoulli(1e-12, 5000, device=device)).any()
        x = ds.random.bernoulli(0.5, (), dtype="float32", device=device)
        assert (ds.dtype_of(x), self.adapter.shape(x)) == ("float32", ())

    @feature("random")
    @pytest.mark.parametrize("nonsense", NONSENSE)
    def test_generators_refuse_invalid_arguments(self, nonsense: str) -> None:
        """Invalid arguments raise `ArgumentError`, which says what to type."""
        with pytest.raises(ds.ArgumentError) as caught:
            NONSENSE[nonsense]()
        assert caught.value.hint

    # ------------------------------------------------------------------ generators
    @feature("random", "generator")
    @pytest.mark.parametrize("call", DRAWS)
    def test_a_generator_repeats_its_draws(self, call: str, device: Device) -> None:
        """Equal seeds give equal draws on one device, and do not use or change the framework's own generators."""
        ds.random.seed(1)
        native = values(ds.random.normal(size=5, device=device))
        ds.random.seed(1)
        make = DRAWS[call]
        one, same, other = (ds.random.Generator(seed, device) for seed in (2**63 + 7, 2**63 + 7, 8))
        first = [make(one) for _ in range(3)]
        assert {ds.device_of(x) for x in first} == {device}
        drawn = [values(x) for x in first]
        assert drawn == [values(make(same)) for _ in range(3)]
        assert len(set(drawn)) == 3
        assert values(make(other)) not in drawn
        assert values(ds.random.normal(size=5, device=device)) == native

    @feature("random", "generator")
    def test_a_generator_has_the_requested_distributions(self, device: Device) -> None:
        """The draws of many calls are independent and have the requested moments."""
        generator = ds.random.Generator(4, device)
        normal = np.concatenate([ds.to_numpy(generator.normal(4, 2, 50)) for _ in range(40)]).astype("float64")
        uniform = np.concatenate([ds.to_numpy(generator.uniform(-2, 5, 50)) for _ in range(40)]).astype("float64")
        assert abs(normal.mean() - 4) < 0.2
        assert abs(normal.std() - 2) < 0.15
        assert abs(uniform.mean() - 1.5) < 0.25
        assert uniform.min() >= -2
        assert uniform.max() < 5
        steps = np.concatenate([ds.to_numpy(generator.randint(10, size=5)) for _ in range(100)])
        assert set(steps.tolist()) == set(range(10))

    @feature("random")
    def test_a_generator_that_the_framework_lacks_is_refused(self) -> None:
        """A gap is refused when the generator is made; a portable one works on every framework."""
        if "generator" in self.adapter.gaps:
            with pytest.raises(ds.UnsupportedError, match=r"random\.Generator"):
                ds.random.Generator(0)
        assert self.adapter.is_tensor(type(ds.random.Generator(0, portable=True).normal(size=2)))

    @feature("random")
    def test_a_generator_without_a_device_follows_the_scope(self, other_device: Device) -> None:
        """It draws on the device of `on`, or the CPU; one with a device draws there."""
        free, bound = (ds.random.Generator(0, at, portable=True) for at in (None, other_device))
        assert ds.device_of(free.normal(size=2)) is ds.cpu()
        with ds.on(other_device):
            assert ds.device_of(free.normal(size=2)) is other_device
        assert ds.device_of(bound.normal(size=2)) is other_device

    @feature("random")
    @pytest.mark.parametrize("portable", [False, True])
    def test_a_generator_continues_from_its_state(self, portable: bool, device: Device, tmp_path: Path) -> None:
        """A state, a copy, and a state saved together with a tensor continue with the same draws."""
        if not portable and "generator" in self.adapter.gaps:
            return
        generator = ds.random.Generator(9, device, portable)
        generator.normal(size=3)
        state = generator.get_state()
        assert all(type(value) is int for value in state.values())
        copies = [copy.deepcopy(generator), pickle.loads(pickle.dumps(generator))]
        path = tmp_path / "state"
        ds.save({"x": self.tensor(), "generator": state}, path)
        expected = [values(generator.uniform(size=4)), values(generator.permutation(9))]
        for restored in (*copies, ds.random.Generator(0, device, portable)):
            if restored not in copies:
                restored.set_state(ds.load(path)["generator"])
            assert [values(restored.uniform(size=4)), values(restored.permutation(9))] == expected
            assert restored.get_state() == generator.get_state()
            assert restored.device is device

    @feature("random")
    def test_threads_can_share_a_generator(self, device: Device) -> None:
        """No draw is lost or made twice when threads draw at the same time."""
        one, shared = (ds.random.Generator(1, device, portable=True) for _ in range(2))
        alone = sorted(values(one.normal(size=7)) for _ in range(40))
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda _: values(shared.normal(size=7)), range(40)))
        assert sorted(together) == alone

    @feature("random")
    def test_refused_draws_do_not_count(self) -> None:
        """An invalid argument leaves a generator unchanged."""
        generator = ds.random.Generator(0, portable=True)
        with pytest.raises(ds.ArgumentError):
            generator.normal(dtype="int8")
        with pytest.raises(ds.ArgumentError):
            generator.uniform(2, 1)
        assert generator.get_state()["draws"] == 0
