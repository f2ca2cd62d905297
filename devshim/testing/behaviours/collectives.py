"""Tests of several devices: `split`, `gather`, reductions, and functions that run at the same time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import DTYPES, OPTIONAL, at_offset, feature, hook, numbers

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

ROWS = (7, 6, 3, 2, 1)


class CollectiveTests(Kit):
    """`split`, `gather`, `broadcast`, `all_reduce_`, `parallel`; only on the host, and from it to GPUs."""

    @pytest.fixture
    def three(self, device: Device) -> list[Device]:
        """Three devices, of which one may occur twice."""
        return [device, ds.cpu(), device]

    # ------------------------------------------------------------------ split and gather
    @feature("several")
    @pytest.mark.parametrize("rows", ROWS)
    def test_split_parts_differ_by_at_most_one_row(self, three: list[Device], rows: int) -> None:
        """Each device gets its part, the larger parts first, and `gather` restores the tensor bit for bit."""
        a = numbers((rows, 2))
        x = ds.from_numpy(a)
        parts = ds.split(x, three)
        sizes = [self.adapter.shape(part)[0] for part in parts]
        assert sizes == [rows // 3 + (i < rows % 3) for i in range(3)]
        assert [ds.device_of(part) for part in parts] == three
        back = ds.gather(parts, three[0])
        assert ds.device_of(back) is three[0]
        assert ds.to_numpy(back).tobytes() == a.tobytes()

    @feature("several")
    def test_split_and_gather_along_another_axis(self, three: list[Device]) -> None:
        """`split` cuts along the requested axis; a negative axis counts from the end."""
        a = numbers((2, 5))
        parts = ds.split(ds.from_numpy(a), three, axis=-1)
        assert [self.adapter.shape(part) for part in parts] == [(2, 2), (2, 2), (2, 1)]
        assert ds.to_numpy(ds.gather(parts, "cpu", axis=1)).tobytes() == a.tobytes()

    @feature("several")
    def test_uneven_rows_are_refused_or_dropped_on_request(self, three: list[Device]) -> None:
        """``uneven="error"`` raises before anything is copied; ``"drop"`` leaves out the last rows."""
        x = ds.from_numpy(numbers((7, 2)))
        with pytest.raises(ds.ArgumentError, match="7"):
            ds.split(x, three, uneven="error")
        parts = ds.split(x, three, uneven="drop")
        assert [self.adapter.shape(part)[0] for part in parts] == [2, 2, 2]
        assert self.same_numbers(ds.gather(parts, "cpu"), numbers((7, 2))[:6])
        assert [self.adapter.shape(p)[0] for p in ds.split(ds.place(x, three[0]), three[:1], uneven="error")] == [7]

    @feature("several")
    def test_split_cuts_every_leaf_of_a_tree_alike(self, three: list[Device]) -> None:
        """Every tensor of a tree is split, and each part is a tree of the same structure.

        Other leaves go to all parts.
        """
        a, b = numbers((5, 2)), numbers((5,))
        tree = {"x": ds.from_numpy(a), "y": [ds.from_numpy(b), "name"]}
        parts = ds.split(tree, three)
        assert [self.adapter.shape(part["x"])[0] for part in parts] == [2, 2, 1]
        assert [part["y"][1] for part in parts] == ["name"] * 3
        assert all(ds.same_device(part) for part in parts)
        back = ds.gather(parts, three[0])
        assert ds.to_numpy(back["x"]).tobytes() == a.tobytes()
        assert ds.to_numpy(back["y"][0]).tobytes() == b.tobytes()

    @feature("several")
    def test_numbers_are_gathered_into_one_tensor(self, three: list[Device]) -> None:
        """Tensors without axes, such as the losses of the parts, become one of shape (parts,), even in a tree."""
        losses = [ds.asarray(float(i), dtype="float32", device=device) for i, device in enumerate(three)]
        for target in three[:2]:
            found = ds.gather(losses, target)
            assert ds.device_of(found) is target
            assert self.same_numbers(found, [0.0, 1.0, 2.0])
            tree = ds.gather([{"loss": x, "n": 3} for x in losses], target, axis=-1)
            assert self.same_numbers(tree["loss"], [0.0, 1.0, 2.0])
        assert self.same_numbers(ds.gather(losses[:1], three[0]), [0.0])
        with pytest.raises(ds.ArgumentError):
            ds.gather(losses, "cpu", axis=1)

    @feature("several", "gradient")
    def test_gradients_flow_to_gathered_numbers(self, three: list[Device]) -> None:
        """Each part gets its own gradient."""

        def joined(x: Tensor) -> Tensor:
            parts = [ds.run(lambda y: y[0], part) for part in ds.split(x, three)]
            return ds.gather(parts, "cpu")

        gradient = self.gradient(joined, ds.from_numpy(numbers((3,))))
        assert gradient is not None
        assert self.same_numbers(gradient, 2 * numbers((3,)))

    @feature("several", "gradient")
    def test_gradients_flow_through_split_and_gather(self, three: list[Device]) -> None:
        """The gradient through `split` and `gather` is the gradient of the whole tensor."""
        a = numbers((4, 2))
        gradient = self.gradient(lambda x: ds.gather(ds.split(x, three), "cpu"), ds.from_numpy(a))
        assert gradient is not None
        assert self.same_numbers(gradient, 2 * a)

    # ------------------------------------------------------------------ copies
    @feature("several")
    def test_broadcast_makes_independent_copies(self, three: list[Device]) -> None:
        """Each device gets an independent copy: a write to one does not change the others or the source."""
        a = numbers()
        x = ds.from_numpy(a)
        copies = ds.broadcast({"x": x}, three)
        assert [ds.device_of(each["x"]) for each in copies] == three
        for each in copies[:-1]:
            if self.can_scribble(ds.device_of(each["x"])):
                self.scribble(each["x"])
        assert self.same_numbers(copies[-1]["x"], a)
        assert self.same_numbers(x, a)

    # ------------------------------------------------------------------ reductions
    @feature("several")
    @pytest.mark.parametrize("op", ["sum", "mean", "max", "min"])
    def test_all_reduce_gives_every_device_the_same_result(self, three: list[Device], op: Any) -> None:
        """Afterwards every tensor contains the sum, mean, maximum or minimum, in place if tensors are writable."""
        arrays = [numbers((2, 3)) * factor for factor in (1, -2, 4)]
        tensors = [ds.from_numpy(a, device) for a, device in zip(arrays, three, strict=True)]
        given = list(tensors)
        assert ds.all_reduce_(given, op) is given
        if not self.adapter.immutable:
            assert all(new is old for new, old in zip(given, tensors, strict=True))
        expected = getattr(np, op)(np.stack(arrays), axis=0)
        assert [ds.device_of(x) for x in given] == three
        assert all(np.allclose(ds.to_numpy(x), expected, rtol=1e-6) for x in given)

    @feature("several", "value_and_grad")
    def test_gradients_of_a_sum_can_be_reduced(self, three: list[Device]) -> None:
        """`all_reduce_` takes the gradients of a function that only adds the elements of a parameter."""

        def gradients(device: Device) -> dict[str, Tensor]:
            params = {"w": ds.from_numpy(numbers((3,)), device), "b": ds.zeros((2, 3), dtype="float32", device=device)}
            xp = ds.namespace(params["w"])
            _, grads = ds.value_and_grad(lambda p: xp.sum(p["w"] * p["w"]) + xp.sum(p["b"]))(params)
            return dict(grads)

        for tree in ds.all_reduce_([gradients(device) for device in three]):
            assert np.allclose(ds.to_numpy(tree["w"]), 6 * numbers((3,)))
            assert self.same_numbers(tree["b"], np.full((2, 3), 3, "float32"))

    @feature("several", "numpy")
    def test_all_reduce_has_read_numpy_memory_on_return(self, device: Device) -> None:
        """NumPy sees the sum in shared memory, and a later write there does not reach the other tensors."""
        a = at_offset(np.zeros(1 << 22, "float32"), 0)  # large, so that work still running would be detected
        for _ in range(3):
            a[...] = 1
            try:
                x = ds.from_numpy(a, copy=False)
            except ds.CopyNeededError:
                return
            entries = [x, ds.full_like(x, 2, device=device)]
            ds.all_reduce_(entries)
            assert entries[0] is not x or (a == 3).all()
            a[...] = 7
            assert (ds.to_numpy(entries[1]) == 3).all()

    @feature("several")
    def test_all_reduce_refuses_mismatched_tensors(self, three: list[Device]) -> None:
        """Different shapes, different dtypes and unknown operations are refused, and nothing changes."""
        x, y = ds.from_numpy(numbers((2, 3)), three[0]), ds.from_numpy(numbers((3, 2)))
        wide = ds.from_numpy(numbers((2, 3)).astype("float64"))
        refused: list[tuple[list[Any], Any]] = [([x, y], "sum"), ([x, wide], "sum"), ([x], "xor")]
        for bad, op in refused:
            with pytest.raises(ds.ArgumentError):
                ds.all_reduce_(bad, op)
        assert self.same_numbers(x, numbers((2, 3)))

    # ------------------------------------------------------------------ dtypes
    @feature("several")
    @pytest.mark.parametrize("dtype", [*DTYPES, *OPTIONAL])
    @pytest.mark.parametrize("axis", [0, 1])
    def test_tensors_of_every_dtype_are_split_and_joined(self, three: list[Device], dtype: str, axis: int) -> None:
        """`split`, `gather`, `broadcast` and `asarray` of a list move the values of every dtype, and keep the dtype."""
        values = [[1, 0, 1], [0, 1, 1], [1, 1, 0]]
        if (x := self._values(values, dtype, "cpu")) is None:
            return
        joined = ds.gather(ds.split(x, three, axis=axis), three[0], axis=axis)
        self._has(joined, values, dtype, three[0])
        for copy, target in zip(ds.broadcast(x, three), three, strict=True):
            self._has(copy, values, dtype, target)
        numbers = [self._values(1, dtype, target) for target in three]
        self._has(ds.gather(numbers, three[0]), [1, 1, 1], dtype, three[0])
        rows = [self._values(row, dtype, three[0]) for row in values]
        self._has(ds.asarray(rows), values, dtype, three[0])

    @feature("several")
    @pytest.mark.parametrize("dtype", [*DTYPES, *OPTIONAL])
    @pytest.mark.parametrize(("op", "expected"), [("sum", 12), ("mean", 4), ("max", 7), ("min", 1)])
    def test_tensors_of_every_dtype_are_reduced(self, three: list[Device], dtype: str, op: Any, expected: int) -> None:
        """`all_reduce_` gives each operation's result in the tensors' dtype, or refuses the operation."""
        for shape in ((), (2,)):
            made = [self._values(np.full(shape, n).tolist(), dtype, at) for n, at in zip((1, 4, 7), three, strict=True)]
            if made[0] is None:
                return
            is_complex = dtype.startswith("complex") and op in ("max", "min")
            if dtype == "bool" or is_complex or ("int" in dtype and op == "mean"):
                with pytest.raises(ds.ArgumentError, match=dtype):
                    ds.all_reduce_(made, op)
                continue
            for found, target in zip(ds.all_reduce_(made, op), three, strict=True):
                self._has(found, np.full(shape, expected).tolist(), dtype, target)

    @feature("several", "float16")
    @pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=feature("bfloat16"))])
    def test_halves_are_rounded_after_each_step(self, dtype: str) -> None:
        """On the host, 16-bit floats are added in the given order, and each sum is rounded to their dtype."""
        large = {"float16": 2048.0, "bfloat16": 256.0}[dtype]
        tensors = [ds.asarray([n], dtype=dtype, device="cpu") for n in (large, 1.0, 1.0)]
        self._has(ds.all_reduce_(tensors)[0], [large], dtype, ds.cpu())

    def _values(self, values: Any, dtype: str, device: Any) -> Tensor | None:
        """Return a tensor; None if the framework lacks one of the optional dtypes."""
        try:
            return ds.asarray(values, dtype=dtype, device=device)
        except ds.ConversionError:
            if dtype not in OPTIONAL:
                raise
            return None

    def _has(self, x: Tensor, values: Any, dtype: str, device: Device) -> None:
        """Check the values, dtype and device of a tensor."""
        assert (ds.dtype_of(x), ds.device_of(x)) == (dtype, device)
        wide = ds.asarray(x, dtype="float32") if dtype == "bfloat16" else x
        assert ds.to_numpy(wide).tolist() == values

    # ------------------------------------------------------------------ at the same time
    @feature("several")
    def test_parallel_runs_at_the_same_time(self, three: list[Device]) -> None:
        """Each function has a thread, all run at the same time, and the results come in order."""
        meet = threading.Barrier(3, timeout=30)

        def work(x: Tensor) -> Any:
            meet.wait()
            return ds.run(lambda y: y + y, x)

        inputs = [ds.from_numpy(numbers() + i, device) for i, device in enumerate(three)]
        found = ds.parallel([work] * 3, inputs)
        assert [ds.device_of(y) for y in found] == three
        assert all(self.same_numbers(y, 2 * (numbers() + i)) for i, y in enumerate(found))

    @feature("several")
    @feature("gradient")
    @hook("gradient")
    def test_gradients_in_parallel_are_right(self, three: list[Device]) -> None:
        """Each thread gets the gradients of its own tensors, on their devices."""
        inputs = [ds.from_numpy(numbers() + i, device) for i, device in enumerate(three)]

        def work(x: Tensor) -> list[Tensor]:
            return [self.gradient(lambda y: y + y, x) for _ in range(20)]

        for i, found in enumerate(ds.parallel([work] * 3, inputs)):
            assert all(self.same_numbers(gradient, 8 * (numbers() + i)) for gradient in found)

    @feature("several")
    def test_the_first_failure_names_its_device(self, three: list[Device]) -> None:
        """After all have ended, the first failure in order is raised, and names the device on which it happened."""
        ended: list[int] = []

        def work(x: Tensor) -> None:
            i = int(ds.to_numpy(x).ravel()[0])
            if i == 0:
                ended.append(i)
                return
            msg = f"failed {i}"
            raise RuntimeError(msg)

        inputs = [ds.full((2,), i, dtype="float32", device=device) for i, device in enumerate((*three, "cpu"))]
        with pytest.raises(RuntimeError, match="failed 1") as caught:
            ds.parallel([work] * 4, inputs)
        assert ended == [0]
        text = "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
        assert "cpu" in text
