"""Tests of `data_parallel` with functions. `data_parallel_models` tests it with models."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import DTYPES, OPTIONAL, feature

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

W = np.array([[1.0], [-2.0], [0.5]], np.float32)


def batch_of(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and targets with this many rows."""
    rng = np.random.default_rng(rows)
    return rng.normal(size=(rows, 3)).astype(np.float32), rng.normal(size=(rows, 1)).astype(np.float32)


def by_hand(x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the mean squared error and its gradient."""
    error = x @ W - y
    return float((error**2).mean()), 2 * x.T @ error / len(x)


@dataclass
class Line:
    """A tree of tensors that can be called."""

    w: Any
    scale: float = 2.0

    def __call__(self, x: Tensor, shift: float = 0.0) -> Tensor:
        """Return the outputs, shape (rows, 1)."""
        return ds.run(lambda x, w: ds.namespace(x).matmul(x, w) * self.scale + shift, x, self.w)


class PartsKit(Kit):
    """The devices of the parts, and the check of a result."""

    @pytest.fixture
    def places(self, device: Device) -> list[Device]:
        """Three devices, of which one may occur twice."""
        return [device, ds.cpu(), device]

    def nearly(self, x: Tensor, expected: Any) -> bool:
        """Return True if a tensor has nearly these numbers."""
        return np.allclose(ds.to_numpy(x), expected, rtol=1e-4, atol=1e-6)


class DataParallelTests(PartsKit):
    """One function on parts of a batch, on several devices."""

    def mean_error(self, params: Any, batch: Any) -> Tensor:
        """Return the mean squared error of a linear layer."""
        error = self.matmul(batch["x"], params["w"]) - batch["y"]
        rows = self.adapter.shape(error)[0]
        weights = ds.from_numpy(np.full((1, rows), 1 / rows, np.float32), ds.device_of(batch["x"]))
        return self.matmul(weights, error * error)[0, 0]

    def given(self, rows: int, device: Device | str) -> tuple[Any, Any]:
        """Return params and a batch."""
        x, y = batch_of(rows)
        return {"w": ds.from_numpy(W, device)}, {"x": ds.from_numpy(x), "y": ds.from_numpy(y)}

    @feature("data_parallel")
    @pytest.mark.parametrize("rows", [7, 6, 2, 1])
    @pytest.mark.parametrize("default", ["cpu", "other"])
    def test_a_mean_over_parts_is_the_mean_of_the_batch(
        self, places: list[Device], other_device: Device, rows: int, default: str
    ) -> None:
        """Uneven parts are weighted by their rows; the result is on the device of the params."""
        params, batch = self.given(rows, places[0])
        with ds.on(other_device if default == "other" else "cpu"):
            loss = ds.data_parallel(self.mean_error, places)(params, batch)
        assert ds.device_of(loss) is places[0]
        assert self.nearly(loss, by_hand(*batch_of(rows))[0])
        alone = ds.data_parallel(self.mean_error, places[:1])(params, batch)
        assert self.nearly(alone, by_hand(*batch_of(rows))[0])

    @feature("data_parallel", "value_and_grad")
    @pytest.mark.parametrize("rows", [7, 2])
    def test_gradients_of_all_parts_are_reduced(self, places: list[Device], rows: int) -> None:
        """`value_and_grad` runs on each part, and the gradients are those of the whole batch."""
        params, batch = self.given(rows, places[0])
        expected, slope = by_hand(*batch_of(rows))
        step = ds.data_parallel(ds.value_and_grad(self.mean_error), places)
        for _ in range(2):
            value, grads = step(params, batch)
            assert self.nearly(value, expected)
            assert self.nearly(grads["w"], slope)
            assert ds.device_of(grads["w"]) is places[0]
            assert ds.device_of(params["w"]) is places[0]

    @feature("several", "value_and_grad")
    def test_gradients_flow_through_parallel(self, places: list[Device]) -> None:
        """Gradients flow to the inputs of the functions of `parallel`, and to other tensors that the functions use."""
        params = {"w": ds.from_numpy(W, places[0]), "scale": ds.full((1,), 3.0, dtype="float32", device=places[0])}

        def loss(p: Any) -> Tensor:
            scales = {at: ds.place(p["scale"], at) for at in places}

            def part(x: Tensor) -> Tensor:
                return (x * x * scales[ds.device_of(x)])[0, 0]

            return sum(ds.place(y, places[0]) for y in ds.parallel([part] * 3, ds.split(p["w"], places)))

        value, grads = ds.value_and_grad(loss)(params)
        assert self.nearly(value, 3 * (W**2).sum())
        assert self.nearly(grads["w"], 6 * W)
        assert self.nearly(grads["scale"], [(W**2).sum()])

    @feature("data_parallel", "value_and_grad")
    def test_gradients_flow_through_data_parallel(self, places: list[Device]) -> None:
        """`value_and_grad` of a data-parallel function gives the same gradients."""
        params, batch = self.given(7, places[0])
        value, grads = ds.value_and_grad(ds.data_parallel(self.mean_error, places))(params, batch)
        expected, slope = by_hand(*batch_of(7))
        assert self.nearly(value, expected)
        assert self.nearly(grads["w"], slope)
        assert ds.device_of(grads["w"]) is places[0]

    @feature("data_parallel")
    def test_results_are_summed_or_averaged_in_any_tree(self, places: list[Device]) -> None:
        """Tensors and floats are reduced, equal values stay, and others are refused with their key path."""
        params, batch = self.given(7, places[0])

        def fn(params: Any, part: Any) -> Any:
            rows = self.adapter.shape(part["x"])[0]
            count = ds.full((2,), rows, dtype="float32", device=ds.device_of(part["x"]))
            return {"rows": [count, float(rows)], "name": "n", "int": ds.asarray([rows], dtype="int32")}

        found = ds.data_parallel(fn, places, op="sum")(params, batch)
        assert self.nearly(found["rows"][0], [7, 7])
        assert (found["rows"][1], found["name"]) == (7.0, "n")
        assert ds.to_numpy(found["int"]).tolist() == [7]
        with pytest.raises(ds.ArgumentError, match="int32") as caught:
            ds.data_parallel(fn, places)(params, batch)
        assert "['int']" in caught.value.problem
        with pytest.raises(ds.ArgumentError, match="part 1"):
            ds.data_parallel(lambda p, b: self.adapter.shape(b["x"])[0], places)(params, batch)

    @feature("data_parallel")
    @pytest.mark.parametrize("dtype", [*DTYPES[1:], *OPTIONAL])
    @pytest.mark.parametrize("shape", [(), (2,)])
    @pytest.mark.parametrize("op", ["sum", "mean"])
    def test_results_keep_their_dtype(self, places: list[Device], dtype: str, shape: tuple[int, ...], op: Any) -> None:
        """The sum or mean of results has their dtype, even if they have no axes."""
        params, batch = self.given(4, places[0])

        def fn(params: Any, part: Any) -> Tensor:
            return ds.full(shape, self.adapter.shape(part["x"])[0], dtype=dtype, device=ds.device_of(part["x"]))

        try:
            ds.zeros((), dtype=dtype)
        except ds.ConversionError:
            assert dtype in OPTIONAL
            return
        if op == "mean" and "int" in dtype:
            with pytest.raises(ds.ArgumentError, match=dtype):
                ds.data_parallel(fn, places, op=op)(params, batch)
            return
        found = ds.data_parallel(fn, places, op=op)(params, batch)
        assert (ds.dtype_of(found), ds.device_of(found)) == (dtype, places[0])
        wide = ds.asarray(found, dtype="float32") if dtype == "bfloat16" else found
        assert ds.to_numpy(wide).tolist() == np.full(shape, 4 if op == "sum" else 1.5).tolist()

    @feature("data_parallel")
    def test_numpy_results_are_reduced_in_host_memory(self, places: list[Device]) -> None:
        """NumPy arrays and scalars beside tensors, such as metrics, are averaged, whatever the devices of the parts."""
        params, batch = self.given(7, places[0])

        def fn(params: Any, part: Any) -> Any:
            inputs = ds.to_numpy(part["x"])
            return {"mean": inputs.mean(axis=0), "largest": np.float64(1.5), "tensor": part["x"][0, 0] * 0 + 1}

        found = ds.data_parallel(fn, places)(params, batch)
        assert self.nearly(found["mean"], ds.to_numpy(batch["x"]).mean(axis=0))
        assert float(found["largest"]) == 1.5
        assert self.nearly(found["tensor"], 1.0)
        assert ds.device_of(found["tensor"]) is places[0]

    @feature("data_parallel")
    def test_the_parts_run_at_the_same_time(self, places: list[Device]) -> None:
        """Each device has a thread; an error is raised once all have ended, and names its device."""
        meet = threading.Barrier(3, timeout=30)
        params, batch = self.given(6, places[0])

        def fn(params: Any, part: Any) -> Any:
            meet.wait()
            return self.mean_error(params, part)

        assert self.nearly(ds.data_parallel(fn, places)(params, batch), by_hand(*batch_of(6))[0])

        def failing(params: Any, part: Any) -> Any:
            msg = "on purpose"
            raise RuntimeError(msg)

        with pytest.raises(RuntimeError, match=f"on purpose.*{places[0]}"):
            ds.data_parallel(failing, places)(params, batch)

    @feature("data_parallel")
    def test_what_cannot_be_split_is_refused(self, places: list[Device], missing_device: Device) -> None:
        """An empty batch, a batch without tensors, an unknown operation and a missing device have clear errors."""
        params, batch = self.given(3, places[0])
        empty = {"x": ds.from_numpy(np.ones((0, 3), np.float32)), "y": ds.from_numpy(np.ones((0, 1), np.float32))}
        with pytest.raises(ds.ArgumentError, match="0 rows"):
            ds.data_parallel(self.mean_error, places)(params, empty)
        with pytest.raises(ds.NotATensorError, match="batch"):
            ds.data_parallel(self.mean_error, places)(params, 3)
        with pytest.raises(ds.ArgumentError, match="op"):
            ds.data_parallel(self.mean_error, places, op="max")  # type: ignore[arg-type]
        with pytest.raises(ds.ArgumentError):
            ds.data_parallel(3, places)  # type: ignore[arg-type]
        with pytest.raises(ds.DeviceNotFoundError):
            ds.data_parallel(self.mean_error, [places[0], missing_device])(params, batch)

    # ------------------------------------------------------------------ models
    @feature("data_parallel", "namespace")
    @pytest.mark.parametrize("rows", [7, 1])
    def test_a_tree_that_can_be_called_is_a_model(self, away: tuple[Device, Device], rows: int) -> None:
        """Its copies compute the parts, and the results are joined where it is; the tree itself is unchanged."""
        x = batch_of(rows)[0]
        for home in (*away, ds.cpu()):
            line = Line(ds.from_numpy(W, home))
            before = line.w
            y = ds.data_parallel(line, away)(ds.from_numpy(x), shift=1.0)
            assert self.nearly(y, 2 * x @ W + 1)
            assert ds.device_of(y) is home
            assert line.w is before

    @feature("data_parallel", "namespace", "value_and_grad")
    def test_gradients_reach_a_tree_that_can_be_called(self, away: tuple[Device, Device]) -> None:
        """Gradients flow from all parts to the tensors of the tree, on their device."""
        x = batch_of(7)[0]

        def loss(weights: Any) -> Tensor:
            y = ds.data_parallel(Line(weights["w"]), away)(ds.from_numpy(x))
            return ds.namespace(y).sum(y)

        _, grads = ds.value_and_grad(loss)({"w": ds.from_numpy(W, away[1])})
        assert self.nearly(grads["w"], 2 * x.sum(0, keepdims=True).T)
        assert ds.device_of(grads["w"]) is away[1]
