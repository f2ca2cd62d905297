"""Tests of `value_and_grad` on plain tensors and trees; models are in `model_gradients`."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit, in_thread
from devshim.testing.values import feature, hook

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

W, B, X = np.array([[1.0, 2.0, 3.0]]), np.array([[0.5]]), np.array([[2.0], [-1.0], [0.25]])
V = float((W @ X + B)[0, 0])
"""The weights, the bias, the input, and what the layer makes of them."""


class Pair(NamedTuple):
    """A named tuple of parameters."""

    w: Any
    b: Any


@dataclasses.dataclass
class Data:
    """A dataclass of parameters, with fields that are not tensors."""

    w: Any
    b: Any
    note: str = "note"
    activation: Any = abs


TREES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], tuple[Any, Any]]]] = {
    "dict": (lambda w, b: {"w": w, "b": [b, None]}, lambda t: (t["w"], t["b"][0])),
    "list": (lambda w, b: [w, {"b": b}], lambda t: (t[0], t[1]["b"])),
    "tuple": (lambda w, b: (w, b), lambda t: t),
    "named tuple": (Pair, lambda t: (t.w, t.b)),
    "dataclass": (Data, lambda t: (t.w, t.b)),
}


class ValueAndGradTests(Kit):
    """The signature of ``jax.value_and_grad`` on every framework."""

    def params(self, device: Device | str = "cpu", dtype: str = "float32") -> dict[str, Tensor]:
        """Return the weights and the bias."""
        return {
            name: ds.from_numpy(a.astype(np.float32), device) if dtype == "float32" else self._cast(a, dtype, device)
            for name, a in (("w", W), ("b", B))
        }

    def _cast(self, a: np.ndarray, dtype: str, device: Device | str) -> Tensor:
        return ds.asarray(a.tolist(), dtype=dtype, device=device)

    def _in_float32(self, x: Tensor) -> np.ndarray:
        return ds.to_numpy(ds.run(lambda t: self.adapter.cast(t, self.adapter.dtype("float32")), x))

    def inputs(self, device: Device | str = "cpu") -> Tensor:
        """Return the input."""
        return ds.from_numpy(X.astype(np.float32), device)

    def loss(self, w: Tensor, b: Tensor, x: Tensor) -> Tensor:
        """Return the square of a linear layer's one output, a scalar."""
        v = (self.matmul(w, x) + b)[0, 0]
        return v * v

    def close(self, x: Tensor, expected: Any, device: Device | None = None) -> bool:
        """Return True if a tensor has these numbers, in this shape, and is on the device."""
        found = ds.to_numpy(x)
        there = device is None or ds.device_of(x) is device
        return there and found.shape == np.shape(expected) and np.allclose(found, expected, rtol=1e-5)

    def right(self, grads: Any, device: Device | None = None) -> bool:
        """Return True if the gradients of the weights and the bias are as computed by hand."""
        w, b = grads
        return self.close(w, 2 * V * X.T, device) and self.close(b, 2 * V * np.ones((1, 1)), device)

    # ------------------------------------------------------------------ right numbers, right places
    @feature("value_and_grad")
    @pytest.mark.parametrize("default", ["same", "other"])
    def test_gradients_have_the_numbers_computed_by_hand(
        self, device: Device, other_device: Device, default: str
    ) -> None:
        """The value and the gradients are right, and on the device of the parameters, with any default device."""
        params, x = self.params(device), self.inputs(device)
        with ds.on(device if default == "same" else other_device):
            value, grads = ds.value_and_grad(lambda p, x: self.loss(p["w"], p["b"], x))(params, x)
        assert float(ds.to_numpy(value).reshape(())) == pytest.approx(V * V)
        assert ds.device_of(value) is device
        assert list(grads) == ["w", "b"]
        assert {type(grad) for grad in grads.values()} == {type(x)}
        assert self.right(grads.values(), device)
        assert self.close(params["w"], W, device), "the parameters have changed"

    @feature("value_and_grad")
    @pytest.mark.parametrize("kind", TREES)
    def test_gradients_have_the_structure_of_the_argument(self, kind: str) -> None:
        """Containers are of the same types; text and None stay, and a function becomes None."""
        make, parts = TREES[kind]
        given = make(*self.params().values())
        _, grads = ds.value_and_grad(lambda t, x: self.loss(*parts(t), x))(given, self.inputs())
        assert type(grads) is type(given)
        assert self.right(parts(grads))
        if kind == "dict":
            assert grads["b"][1] is None
        if kind == "dataclass":
            assert (grads.note, grads.activation, given.activation) == ("note", None, abs)

    @feature("value_and_grad")
    def test_argnums_choose_the_arguments(self) -> None:
        """A tuple or range gives a tuple of gradients; negative positions count from the end; keywords are passed."""
        w, b = self.params().values()
        x = self.inputs()
        for both in ((0, 1), [0, 1], range(2)):
            _, grads = ds.value_and_grad(self.loss, argnums=both)(w, b, x)
            assert type(grads) is tuple
            assert self.right(grads)
        _, grads = ds.value_and_grad(self.loss, argnums=(-2, 0))(w, b, x)
        assert self.right(grads[::-1])
        _, grad = ds.value_and_grad(self.loss, 1)(w, b, x=x)
        assert self.close(grad, [[2 * V]])
        _, (grad,) = ds.value_and_grad(self.loss, (2,))(w, b, x)
        assert self.close(grad, 2 * V * W.T)

    @feature("value_and_grad")
    def test_auxiliary_results_are_returned(self, device: Device) -> None:
        """With ``has_aux``, the second result comes back unchanged, free of any graph."""
        w, b = self.params(device).values()

        def fn(w: Tensor) -> Any:
            return self.loss(w, b, self.inputs(device)), {"double": w + w, "name": "n", "b": (b, 3)}

        (value, aux), grad = ds.value_and_grad(fn, has_aux=True)(w)
        assert self.close(value, np.full(ds.to_numpy(value).shape, V * V))
        assert self.close(grad, 2 * V * X.T, device)
        assert self.close(aux["double"], 2 * W, device)
        assert (aux["name"], aux["b"][1]) == ("n", 3)
        assert self.close(aux["b"][0], B, device)
        with pytest.raises(ds.ArgumentError, match="has_aux"):
            ds.value_and_grad(lambda w: self.loss(w, b, self.inputs(device)), has_aux=True)(w)

    @feature("value_and_grad")
    def test_unused_tensors_have_zero_gradients(self, device: Device) -> None:
        """A tensor that the value does not depend on has a gradient of zeros, even if all are unused."""
        params = {**self.params(device), "unused": self.tensor(device)}
        x = self.inputs(device)
        _, grads = ds.value_and_grad(lambda p: self.loss(p["w"], p["b"], x))(params)
        assert self.right([grads["w"], grads["b"]], device)
        assert self.close(grads["unused"], np.zeros((3, 4)), device)
        # The sum has no axes, while an element outside `value_and_grad` has one in MXNet 1.9.
        constant = ds.namespace(x).sum(self.loss(params["w"], params["b"], x))
        value, grads = ds.value_and_grad(lambda p: constant)(params)
        assert self.close(value, np.full(ds.to_numpy(value).shape, V * V))
        assert all(self.close(g, 0 * ds.to_numpy(params[k]), device) for k, g in grads.items())

    @feature("value_and_grad")
    def test_one_tensor_in_two_places_has_two_gradients(self) -> None:
        """Each place has its own gradient, as with JAX."""
        x = self.inputs()
        a = ds.from_numpy(np.full((1, 1), 3, np.float32))
        _, grads = ds.value_and_grad(lambda t: (t[0] * t[0] * t[1])[0, 0])([a, a])
        assert self.close(grads[0], [[18.0]])
        assert self.close(grads[1], [[9.0]])
        assert self.close(x, X)

    @feature("value_and_grad")
    def test_gradients_keep_the_dtype(self, device: Device) -> None:
        """A gradient has the dtype of its tensor."""
        for dtype in ("float32", "float64", "float16", "bfloat16"):
            if dtype in self.adapter.gaps:
                continue
            x = self._cast(B, dtype, device)
            try:
                self._in_float32(ds.run(lambda t: (t * t + t)[0, 0], x))  # an asynchronous failure is raised here
            except Exception:  # the framework cannot compute in this dtype on this device, with or without gradients
                assert dtype in ("float16", "bfloat16")
                continue
            value, grad = ds.value_and_grad(lambda t: (t * t)[0, 0])(x)
            assert {self.adapter.dtype_name(value), self.adapter.dtype_name(grad)} == {dtype}
            found = self._in_float32(grad)
            assert found.shape == (1, 1)
            assert np.allclose(found, 1.0, rtol=1e-5)
            assert ds.device_of(grad) is device

    # ------------------------------------------------------------------ nothing else changes
    @feature("value_and_grad")
    @hook("trainable")
    def test_the_callers_tensors_stay_as_they_are(self, device: Device) -> None:
        """The flags that request gradients stay, the results have none, and stored gradients stay away."""
        for w in (self.tensor(device, (1, 3)), self.trainable(self.tensor(device, (1, 3)))):
            was, b, x = self.is_trainable(w), self.params(device)["b"], self.inputs(device)
            value, grad = ds.value_and_grad(lambda w, b=b, x=x: self.loss(w, b, x))(w)
            assert self.is_trainable(w) is was
            assert getattr(w, "grad", None) is None
            assert not self.is_trainable(value)
            assert not self.is_trainable(grad)

    @feature("value_and_grad")
    def test_errors_of_the_function_pass_through(self, device: Device) -> None:
        """The function's error is the caller's, and the next call is right."""
        params, x = self.params(device), self.inputs(device)

        def failing(p: Any) -> Any:
            self.loss(p["w"], p["b"], x)
            msg = "on purpose"
            raise KeyError(msg)

        with pytest.raises(KeyError, match="on purpose"):
            ds.value_and_grad(failing)(params)
        _, grads = ds.value_and_grad(lambda p: self.loss(p["w"], p["b"], x))(params)
        assert self.right(grads.values(), device)

    @feature("value_and_grad", "simulate_memory")
    def test_no_graph_is_left(self, other_device: Device) -> None:
        """After the results are gone, or an error, the memory is free; while they are there, only they need memory."""
        if not self.adapter.simulated:
            return
        params, x = self.params(other_device), self.inputs(other_device)
        step = ds.value_and_grad(lambda p: (self.loss(p["w"], p["b"], x), [p["w"] + p["w"]]), has_aux=True)
        used = []
        for _ in range(4):
            kept = step(params)
            with contextlib.suppress(KeyError):
                ds.value_and_grad(lambda p: {"loss": self.loss(p["w"], p["b"], x)}["lost"])(params)
            gc.collect()
            ds.synchronize(other_device)
            used.append((ds.memory(other_device).used, kept is not None))
        assert used[1:] == used[:1] * 3
        del kept

    # ------------------------------------------------------------------ threads
    @feature("value_and_grad", "several")
    def test_gradients_in_threads_are_right(self, device: Device, other_device: Device) -> None:
        """Each thread gets its own gradients, in `parallel` and in threads of the caller."""

        def work(params: Any) -> list[Any]:
            at = ds.device_of(params["w"])
            step = ds.value_and_grad(lambda p, x: self.loss(p["w"], p["b"], x))
            return [step(params, self.inputs(at))[1] for _ in range(10)]

        devices = [device, other_device, device]
        for at, found in zip(devices, ds.parallel([work] * 3, [self.params(d) for d in devices]), strict=True):
            assert all(self.right(grads.values(), at) for grads in found)
        assert all(self.right(g.values(), device) for g in in_thread(lambda: work(self.params(device))))

    # ------------------------------------------------------------------ several devices, higher order
    @feature("value_and_grad", "gradient")
    def test_gradients_arrive_on_each_tensors_device(self, away: tuple[Device, Device]) -> None:
        """Parameters on two devices have their gradients there."""
        params = {"w": self.params(away[0])["w"], "b": self.params(away[1])["b"]}

        def fn(p: Any, x: Tensor) -> Tensor:
            y = ds.place(ds.run(self.matmul, p["w"], x), away[1])
            return ds.run(lambda y, b: ((y + b) * (y + b))[0, 0], y, p["b"])

        value, grads = ds.value_and_grad(fn)(params, self.inputs(away[0]))
        assert ds.device_of(value) is away[1]
        assert self.close(grads["w"], 2 * V * X.T, away[0])
        assert self.close(grads["b"], [[2 * V]], away[1])

    @feature("value_and_grad", "higher_order")
    def test_gradients_of_gradients(self, device: Device) -> None:
        """A `value_and_grad` inside the function of another one is differentiated too."""

        def cube(t: Tensor) -> Tensor:
            return (t * t * t)[0, 0]

        def slope(t: Tensor) -> Tensor:
            return ds.value_and_grad(cube)(t)[1][0, 0]

        x = ds.from_numpy(np.full((1, 1), 2, np.float32), device)
        value, grad = ds.value_and_grad(slope)(x)
        assert self.close(grad, [[12.0]], device)
        assert float(ds.to_numpy(value).reshape(())) == 12.0
        assert self.close(ds.value_and_grad(lambda t: ds.value_and_grad(slope)(t)[1][0, 0])(x)[1], [[6.0]], device)
        both = ds.value_and_grad(lambda t: cube(t) + slope(t) * slope(t))
        assert self.close(both(x)[1], [[12.0 + 2 * 12 * 12]], device)

    @feature("value_and_grad")
    def test_higher_orders_work_or_are_a_gap(self) -> None:
        """If the framework cannot, the inner call raises; it never gives a constant."""
        if "higher_order" not in self.adapter.gaps:
            return
        x = ds.from_numpy(np.full((1, 1), 2, np.float32))
        with pytest.raises(ds.UnsupportedError, match="another `value_and_grad`"):
            ds.value_and_grad(lambda t: ds.value_and_grad(lambda u: (u * u)[0, 0])(t)[1][0, 0])(x)
        assert self.close(ds.value_and_grad(lambda u: (u * u)[0, 0])(x)[1], [[4.0]])
