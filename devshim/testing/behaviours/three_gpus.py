"""Tests on three simulated GPUs: uneven parts, placements over all three, and a failure of one GPU.

Run them with ``-m cards --devshim-gpus=3``; with fewer GPUs they are not collected.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pytest

import devshim as ds
from devshim.testing.behaviours.models import ModelKit
from devshim.testing.values import cards, feature, hook, numbers

GPUS = [ds.gpu(0), ds.gpu(1), ds.gpu(2)]
MANY = 200
"""More events than any call here has on one GPU."""

CALLS: dict[str, Callable[[Any], Any]] = {
    "split": lambda tree: ds.split(tree, GPUS),
    "broadcast": lambda tree: ds.broadcast(tree, GPUS),
    "place": lambda tree: ds.place(tree, ds.Placement({"x": "gpu:1", "y": "gpu:2"})),
    "copy": lambda tree: ds.copy([tree, tree["y"]], "gpu:2"),
}
"""Calls that copy something from the host to the third GPU."""


class ThreeGpuTests(ModelKit):
    """Behaviour that needs more than two GPUs."""

    def failing(self, what: Literal["allocation", "copy", "vanish"]) -> Iterator[int]:
        """Yield once for each event on the third GPU, which fails.

        The caller stops when its call has no further events.
        """
        for at in range(1, MANY):
            with ds.simulate(3, faults=ds.Fault("gpu:2", what, at=at)):
                yield at
        msg = f"the call still fails at event {at}"
        raise AssertionError(msg)

    def loads(self) -> list[int | None]:
        """Return the bytes used on the first two GPUs, which do not fail."""
        gc.collect()
        return [ds.memory(gpu).used for gpu in GPUS[:2]]

    def problem_of_the_third_gpu(self, call: Callable[[], object], error: type[ds.DevshimError]) -> str | None:
        """Return the text of a call's failure, which must name the third GPU; None if the call does not fail."""
        try:
            call()
        except ds.DevshimError as raised:
            text, right = raised.problem, isinstance(raised, error)
        else:
            return None
        assert right, text
        assert text.startswith("gpu:2 ")
        return text

    # ------------------------------------------------------------------ several devices
    @cards(3)
    @feature("several")
    def test_three_gpus_share_seven_rows(self) -> None:
        """7 rows are split into 3, 2 and 2, and 2 rows into 1, 1 and 0; `gather` restores the original rows."""
        for rows, sizes in ((7, [3, 2, 2]), (3, [1, 1, 1]), (2, [1, 1, 0])):
            a, b = numbers((rows, 2)), numbers((rows,))
            parts = ds.split({"x": ds.from_numpy(a), "y": [ds.from_numpy(b)]}, GPUS)
            assert [self.adapter.shape(part["x"])[0] for part in parts] == sizes
            assert [self.adapter.shape(part["y"][0])[0] for part in parts] == sizes
            assert [ds.placement_of(part).devices for part in parts] == [{gpu} for gpu in GPUS]
            gathered = ds.gather(parts, "gpu:1")
            assert ds.placement_of(gathered).devices == {ds.gpu(1)}
            assert self.same_numbers(gathered["x"], a)
            assert self.same_numbers(gathered["y"][0], b)

    @cards(3)
    @feature("several")
    def test_three_gpus_sum_their_results(self) -> None:
        """Each GPU computes with its rows at the same time as the others, and then contains the sum of all three."""
        a, w = numbers((2, 7)), numbers((7, 3))
        columns, rows = ds.split(ds.from_numpy(a), GPUS, axis=1), ds.split(ds.from_numpy(w), GPUS)
        products = ds.parallel([lambda pair: self.matmul(*pair)] * 3, list(zip(columns, rows, strict=True)))
        assert [ds.device_of(product) for product in products] == GPUS
        for gpu, total in zip(GPUS, ds.all_reduce_(products), strict=True):
            assert ds.device_of(total) is gpu
            assert self.same_numbers(total, a @ w)

    @cards(3)
    @feature("several")
    def test_a_failure_names_its_gpu_of_three(self) -> None:
        """An error names its device: the third GPU, one that does not exist, or each of those that differ."""

        def work(x: Any) -> None:
            if ds.device_of(x) is ds.gpu(2):
                raise ValueError("bad rows")

        x = ds.from_numpy(numbers((7, 2)))
        parts = ds.split(x, GPUS)
        with pytest.raises(ValueError, match=r"bad rows \(in callable 2 of ds.parallel, on gpu:2\)"):
            ds.parallel([work] * 3, parts)
        before = self.loads()
        with pytest.raises(ds.DeviceNotFoundError, match="gpu:3"):
            ds.split(x, [*GPUS, "gpu:3"])
        assert self.loads() == before
        with pytest.raises(ds.DeviceMismatchError) as caught:
            ds.require_same_device(first=parts[0], second=parts[1], third=parts[2])
        for word in ("first is on gpu:0", "second is on gpu:1", "third is on gpu:2"):
            assert word in caught.value.problem

    # ------------------------------------------------------------------ one GPU fails
    @cards(3)
    @feature("several", "simulate_memory")
    @pytest.mark.parametrize(
        ("call", "what"), [("split", "allocation"), ("broadcast", "copy"), ("place", "allocation"), ("copy", "vanish")]
    )
    def test_a_failed_call_leaves_no_memory_on_three_gpus(self, call: str, what: Any) -> None:
        """If anything fails on the third GPU, the error names that GPU, and the others free their memory."""
        expected = ds.OutOfMemoryError if what == "allocation" else ds.DeviceFailedError
        tree = {"x": ds.from_numpy(numbers((7, 2))), "y": ds.from_numpy(numbers((7,)))}
        before = self.loads()
        for at in self.failing(what):
            text = self.problem_of_the_third_gpu(lambda: CALLS[call](tree), expected)
            if text is None:
                break
            assert "(at the leaf [" in text
            assert self.loads() == before, at
        assert at > 1
        assert self.same_numbers(tree["x"], numbers((7, 2)))

    @cards(3)
    @feature("several", "simulate_memory")
    def test_all_reduce_in_place_over_three_gpus_is_atomic(self) -> None:
        """A sum that fails on one GPU changes no tensor on any GPU."""
        arrays = [numbers() * factor for factor in (1, -2, 4)]
        failed = 0
        for _ in self.failing("allocation"):
            try:
                tensors = [ds.from_numpy(a, gpu) for a, gpu in zip(arrays, GPUS, strict=True)]
            except ds.OutOfMemoryError:
                continue
            if self.problem_of_the_third_gpu(lambda given=tensors: ds.all_reduce_(given), ds.OutOfMemoryError) is None:  # type: ignore[misc]
                break
            failed += 1
            assert all(self.same_numbers(x, a) for x, a in zip(tensors, arrays, strict=True))
        assert failed
        assert all(self.same_numbers(x, sum(arrays)) for x in tensors)

    @cards(3)
    @feature("models", "simulate_memory")
    @hook("model", "optimizer")
    def test_placing_a_model_over_three_gpus_is_atomic(self) -> None:
        """If any leaf fails on its way to the third GPU, the error names it, and everything is unchanged."""
        model = self.model()
        optimizer = self.optimizer(model)
        self.train_step(model, optimizer, *self.data(), lambda: None)
        plan = ds.Placement.balanced(model, GPUS, ["1MiB"] * 3)
        before, memory = self.state_of(model, optimizer), self.loads()
        for at in self.failing("allocation"):
            text = self.problem_of_the_third_gpu(lambda: ds.place([model, optimizer], plan), ds.OutOfMemoryError)
            if text is None:
                break
            assert "(at the leaf " in text
            self.check_on(model, ds.cpu())
            self.check_on(optimizer, ds.cpu())
            assert self.loads() == memory, at
        assert at > 2
        assert ds.placement_of(model) == plan
        self.check_equal(self.state_of(model, optimizer), before)

    @cards(3)
    @feature("models", "simulate_memory")
    @hook("model", "optimizer")
    def test_a_move_over_three_gpus_needs_no_extra_memory(self) -> None:
        """GPUs with exactly enough memory for the model and its optimizer take them, one GPU after the other."""
        model = self.model()
        optimizer = self.optimizer(model)
        self.train_step(model, optimizer, *self.data(), lambda: None)
        before, empty = self.state_of(model, optimizer), self.loads()[0] or 0
        ds.place([model, optimizer], "gpu:0")
        needed = (self.loads()[0] or 0) - empty
        ds.place([model, optimizer], "cpu")
        with ds.simulate(3, memory=needed):
            for there in ("gpu:2", "cpu", "gpu:1", "gpu:0", "cpu"):
                ds.place([model, optimizer], there)
                self.check_on(optimizer, ds.device(there))
        with ds.simulate(3, memory=needed - 1), pytest.raises(ds.OutOfMemoryError, match="at the leaf "):
            ds.place([model, optimizer], "gpu:2")
        self.check_on(model, ds.cpu())
        self.check_equal(self.state_of(model, optimizer), before)

    # ------------------------------------------------------------------ placements
    @cards(3)
    def test_a_placement_spreads_a_tree_over_three_gpus(self) -> None:
        """A plan gives each GPU consecutive layers and minimizes the largest load; `place` applies it exactly."""
        rows = (4, 1, 2, 3, 1, 1)
        tree = {"layers": [{"w": ds.from_numpy(numbers((n, 4)))} for n in rows]}
        plan = ds.Placement.balanced(tree, GPUS)
        found = [plan[f"layers.{i}.w"].index for i in range(6)]
        assert found == sorted(found)
        assert max(sum(n for n, gpu in zip(rows, found, strict=True) if gpu == i) for i in range(3)) == 5
        there = ds.place(tree, plan)
        assert ds.placement_of(there) == plan
        back = ds.place(there, "cpu")["layers"]
        assert all(self.same_numbers(layer["w"], numbers((n, 4))) for layer, n in zip(back, rows, strict=True))

    @cards(3)
    @feature("models")
    @hook("model", "optimizer")
    def test_a_model_over_three_gpus_trains(self) -> None:
        """A model over three GPUs computes the same numbers as on the CPU, and trains to the same weights."""
        results = []
        for share in (False, True):
            model = self.model()
            if share:
                plan = ds.Placement.balanced(model, GPUS)
                assert plan.devices == set(GPUS)
                assert ds.place(model, plan) is model
            optimizer = self.optimizer(model)
            where = ds.gpu(0) if share else ds.cpu()
            found = [ds.to_numpy(self.forward(model, self.data(where)[0]))]
            last = ds.gpu(2) if share else ds.cpu()
            x, y = self.data(where)[0], self.data(last)[1]
            for _ in range(2):
                self.train_step(model, optimizer, x, y, lambda: None)
            results.append([*found, *self.state_of(ds.place(model, "cpu")).values()])
        assert len(results[0]) == len(results[1])
        assert all(np.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(*results, strict=True))

    @cards(3)
    @feature("models")
    @hook("model", "optimizer")
    def test_a_model_moves_over_three_gpus_in_turn(self) -> None:
        """A model trained on each GPU in turn has the same bits as one that never moved."""
        expected = self.train_weights(self.optimizer, ["cpu"] * 5)
        self.check_same_training(
            self.train_weights(self.optimizer, ["gpu:1", "gpu:2", "cpu", "gpu:0", "gpu:2"]), expected
        )
