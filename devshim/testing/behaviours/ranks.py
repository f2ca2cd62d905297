"""Tests of `devshim.world` on every device: sums of all kinds of trees, the ledger, and calls that are refused.

The ranks are threads of this process, and exchange arrays by the portable engine.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.contract.ranks import Place
from devshim.testing.behaviours.models import ModelKit
from devshim.testing.thread_ranks import on_ranks
from devshim.testing.values import feature, hook, numbers
from devshim.world.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.devices.device import Device

OPS = ("sum", "mean", "max", "min")
COMBINED = {"sum": lambda xs: xs.sum(0), "mean": lambda xs: xs.mean(0), "max": lambda xs: xs.max(0)}
COMBINED["min"] = lambda xs: xs.min(0)


def arrays(rank: int) -> dict[str, np.ndarray]:
    """Return the arrays of one rank, of all shapes."""
    random = np.random.default_rng(rank)
    shapes = {"matrix": (3, 4), "scalar": (), "one": (1,), "no rows": (0, 5), "row": (7,), "deep": (2, 1, 3)}
    return {name: random.normal(size=shape).astype("float32") for name, shape in shapes.items()}


class RankTests(ModelKit):
    """`devshim.world` with several ranks."""

    @feature("several")
    @pytest.mark.parametrize("op", OPS)
    def test_sums_over_ranks_of_every_tree(self, device: Device, other_device: Device, op: Any) -> None:
        """Nested and empty containers, no axes, no rows, and leaves that are not tensors, on two devices a rank."""
        devices = [device, other_device]

        def tree(number: int) -> Any:
            found = {name: ds.from_numpy(a, devices[number % 2]) for name, a in arrays(number).items()}
            (matrix, scalar, one), rest = list(found.values())[:3], list(found.values())[3:]
            return {
                "nested": [{"matrix": matrix}, (scalar, [])],
                "empty": {},
                "one": one,
                "rest": rest,
                "words": "a",
                "n": 3,
            }

        def job(world: World) -> Any:
            mine = [tree(2 * world.rank), tree(2 * world.rank + 1)]
            given = [id(each) for each in mine]
            result = world.all_reduce_(mine, op)
            assert result is mine
            if self.adapter.supports_inplace(mine[0]["one"]):
                assert [id(each) for each in mine] == given
            return mine

        stacked = [np.stack([arrays(number)[name] for number in range(4)]) for name in arrays(0)]
        expected = [COMBINED[op](each) for each in stacked]
        first: list[bytes] = []
        for found in on_ranks(2, job, timeout=20):
            for i, each in enumerate(found):
                assert (each["words"], each["n"], each["empty"], each["nested"][1][1]) == ("a", 3, {}, [])
                leaves = [each["nested"][0]["matrix"], each["nested"][1][0], each["one"], *each["rest"]]
                assert all(ds.device_of(x) is devices[i] for x in leaves)
                values = [ds.to_numpy(x) for x in leaves]
                for value, want in zip(values, expected, strict=True):
                    assert (value.shape, value.dtype) == (want.shape, "float32")
                    np.testing.assert_allclose(value, want, rtol=1e-6, atol=1e-6)
                first = first or [value.tobytes() for value in values]
                assert [value.tobytes() for value in values] == first

    @feature("several")
    def test_the_order_of_keys_may_differ_between_ranks(self, device: Device) -> None:
        """Tensors belong together by their keys; other keys are an error on every rank."""

        def job(world: World) -> Any:
            pair = [("a", ds.full(2, 1.0 + world.rank, device=device)), ("b", ds.full(2, 10.0, device=device))]
            (found,) = world.all_reduce_([dict(pair[:: 1 - 2 * world.rank])])
            return {key: ds.to_numpy(x).tolist() for key, x in found.items()}

        assert on_ranks(2, job, timeout=20) == [{"a": [3, 3], "b": [20, 20]}] * 2

        def other(world: World) -> Any:
            return world.all_reduce_([{"ab"[world.rank]: ds.ones(2, device=device)}])

        for error in on_ranks(2, other):
            assert isinstance(error, ds.RanksDisagreeError)
            assert "['a']" in str(error)
            assert "['b']" in str(error)

    @feature("several")
    def test_dtypes_over_ranks(self, device: Device) -> None:
        """Whole numbers keep their dtype; a call without a result is an immediate error on every rank."""
        whole = on_ranks(
            2, lambda world: world.all_reduce_([ds.full(3, 2 + world.rank, dtype="int32", device=device)])[0]
        )
        assert [(ds.to_numpy(x).tolist(), ds.dtype_of(x)) for x in whole] == [([5] * 3, "int32")] * 2
        for error in on_ranks(2, lambda world: world.all_reduce_([ds.ones(3, dtype="int32", device=device)], "mean")):
            assert isinstance(error, ds.ArgumentError)
            assert "mean of int32" in str(error)
        flags = self.adapter.from_numpy(np.ones(3, bool), device, True)
        for error in on_ranks(2, lambda world: world.all_reduce_([flags])):
            assert isinstance(error, ds.ArgumentError)

    @feature("several", "gradient")
    @hook("trainable", "is_trainable")
    def test_sums_of_tensors_that_require_a_gradient(self, device: Device) -> None:
        """They keep the flag, and no gradient flows through the sum."""

        def job(world: World) -> Any:
            x = self.trainable(ds.full((2, 2), world.rank + 1.0, dtype="float32", device=device))
            box = world.all_reduce_([x])
            assert not self.adapter.supports_inplace(x) or box[0] is x
            return ds.to_numpy(box[0]).tolist(), self.is_trainable(x)

        assert on_ranks(2, job, timeout=20) == [([[3, 3]] * 2, True)] * 2

    @feature("several", "namespace")
    def test_sums_of_tensors_in_another_memory_order(self, device: Device) -> None:
        """A transposed tensor is summed by its positions."""
        a = numbers((3, 4))

        def job(world: World) -> Any:
            x = ds.from_numpy(a if world.rank == 0 else np.ascontiguousarray(a.T), device)
            y = ds.namespace(x).permute_dims(x, (1, 0)) if world.rank else ds.copy(x, device)
            return ds.to_numpy(world.all_reduce_([y])[0])

        for found in on_ranks(2, job, timeout=20):
            np.testing.assert_array_equal(found, 2 * a)

    @feature("several")
    def test_tensors_in_an_array_of_objects_are_refused(self, device: Device) -> None:
        """They would be pickled; those of NumPy are arrays like others, and a list of tensors is sent as tensors."""
        box = np.empty(2, object)
        box[:] = [{"x": ds.ones(2, device=device)}, "text"]
        outer = np.empty(1, object)
        outer[0] = box
        for found in on_ranks(2, lambda world: world.all_gather({"a": [1, outer]}), timeout=20):
            if self.adapter.name == "numpy":
                assert [each["a"][1][0][1] for each in found] == ["text"] * 2
            else:
                assert isinstance(found, ds.ArgumentError)
                assert "an array of Python objects at ['a'][1] contains tensors or models" in found.problem
        for found in on_ranks(2, lambda world: world.all_gather(box.tolist()), timeout=20):
            assert [str(ds.device_of(each[0]["x"])) for each in found] == [str(device)] * 2
        for found in on_ranks(2, lambda world: world.all_gather(np.array(["a", None, 3], object)), timeout=20):
            assert [each.tolist() for each in found] == [["a", None, 3]] * 2

    @feature("several")
    @hook("model", "optimizer")
    def test_models_and_optimizers_are_not_summed(self, device: Device) -> None:
        """The error says to pass gradients or weights."""
        model = ds.place(self.model(), device)
        for what in (model, self.optimizer(model), {"x": model}):
            for error in on_ranks(2, lambda world, what=what: world.all_reduce_([what])):  # type: ignore[misc]
                assert isinstance(error, ds.NotATensorError)

    @feature("several")
    def test_numbers_are_not_summed(self, device: Device) -> None:
        """A number of Python or NumPy together with tensors is unchanged, and without tensors is an error."""

        def job(world: World) -> Any:
            tree = {"x": ds.ones(1, device=device), "n": np.float32(world.rank), "m": 2.0}
            (found,) = world.all_reduce_([tree])
            return float(found["n"]), found["m"], ds.to_numpy(found["x"]).tolist()

        assert on_ranks(2, job, timeout=20) == [(0.0, 2.0, [2]), (1.0, 2.0, [2])]
        for error in on_ranks(2, lambda world: world.all_reduce_([np.float32(1)])):
            assert isinstance(error, ds.NotATensorError)

    @feature("several")
    def test_the_ledger_records_what_ranks_send(self, device: Device) -> None:
        """Sums, broadcasts and gathers are records with their bytes, the number of ranks and the user's line."""
        x = ds.from_numpy(numbers((30, 4)), device)

        def job(world: World) -> Any:
            with ds.transfers() as log:
                world.all_reduce_([ds.copy(x, device)])
                world.broadcast(x, root=1)
                world.all_gather({"x": x})
                world.barrier()
            return log

        for rank, log in enumerate(on_ranks(3, job)):
            sent = [record for record in log.records if record.call]
            assert [each.call for each in sent] == ["all_reduce, sum", "broadcast from rank 1", "all_gather"]
            assert [each.bytes for each in sent] == [640, 960 if rank == 1 else 0, 960]
            assert all(each.ranks == 3 and each.source is each.target is device for each in sent)
            assert all(each.seconds > 0 and "ranks.py:" in each.site and each.tensors == 1 for each in sent)
            assert log.bytes() == log.total_bytes
            copied = sum(each.bytes for each in log.records if not each.call)
            assert log.total_bytes == copied + sum(each.bytes for each in sent)
            assert log.bytes(source=device) <= copied
            assert "3 ranks: all_reduce, sum" in repr(log)

    @feature("several", "gradient")
    @hook("trainable")
    def test_the_gradient_flag_is_kept_between_ranks(self, device: Device) -> None:
        """A tensor of another rank asks for a gradient if it does there, as after `place` and `copy`."""

        def job(world: World) -> list[bool]:
            x, y = (ds.from_numpy(numbers((3,)), device) for _ in range(2))
            tree = {"x": self.trainable(x) if world.rank else x, "y": y}
            found = [world.broadcast(tree, root=1), world.broadcast(tree, root=0), *world.all_gather(tree)]
            assert [[ds.device_of(x) for x in each.values()] for each in found] == [[device] * 2] * 4
            return [self.is_trainable(x) for each in found for x in each.values()]

        assert on_ranks(2, job) == [[True, False, False, False, False, False, True, False]] * 2

    @feature("several")
    def test_calls_in_the_threads_of_parallel_are_refused(self, device: Device, other_device: Device) -> None:
        """Ranks may order the calls of such threads differently; no rank waits for another."""
        xs = [ds.ones(1, device=each) for each in (device, other_device)]

        def job(world: World) -> list[str]:
            calls = [
                world.barrier,
                lambda: world.all_reduce_([xs[0]]),
                lambda: world.all_gather(1),
                lambda: world.broadcast(1),
            ]
            texts = []
            for call in calls:
                with pytest.raises(ds.UnsupportedError) as error:
                    ds.parallel([lambda _, call=call: call()] * 2, xs)  # type: ignore[misc]
                texts.append(str(error.value))
            return texts

        for texts in on_ranks(2, job, timeout=20):
            assert all("in a thread of ds.parallel" in text for text in texts)

    @feature("several")
    @hook("compiled")
    @pytest.mark.parametrize("call", ["all_reduce_", "broadcast", "all_gather", "barrier"])
    def test_compiled_calls_between_ranks_are_refused(self, device: Device, call: str) -> None:
        """A compiler would record the exchange of one run, or none."""
        x = ds.from_numpy(numbers((2,)), device)

        def peers(place: Place) -> Any:
            pytest.fail("the call reached the other ranks")

        world = World(Place(size=2), peers)
        calls: dict[str, Callable[[Any], Any]] = {"broadcast": world.broadcast, "all_gather": world.all_gather}
        calls |= {"all_reduce_": lambda y: world.all_reduce_([y]), "barrier": lambda y: world.barrier()}

        def inside(y: Any) -> Any:
            calls[call](y)
            return y

        tracing = [compiled for compiled, once in self.compilers().values() if once]  # others run the call each time
        assert tracing
        for compiled in tracing:
            with pytest.raises(ds.TracingError, match=r"world|all_reduce_"):
                compiled(inside)(x)

    @feature("several")
    def test_two_threads_of_a_rank_are_not_mixed(self, device: Device) -> None:
        """A call while another thread is in one is an error that names the call; the first one ends well."""
        begun = threading.Event()
        texts: list[str] = []

        def job(world: World) -> Any:
            if world.rank == 1:
                assert begun.wait(30)
                x = ds.ones(2, dtype="float32", device=device)
                return ds.to_numpy(world.all_reduce_([x])[0]).tolist()
            found: list[Any] = []
            x = ds.ones(2, dtype="float32", device=device)
            first = threading.Thread(target=lambda: found.append(world.all_reduce_([x])[0]), name="first")
            first.start()
            while world.steps.doing is None and first.is_alive():
                pass
            for call in (world.barrier, lambda: world.all_reduce_([ds.ones(1, device=device)])):
                with pytest.raises(ds.UnsupportedError) as error:
                    call()
                texts.append(str(error.value))
            begun.set()
            first.join()
            return ds.to_numpy(found[0]).tolist()

        assert on_ranks(2, job, timeout=20) == [[2, 2]] * 2
        assert all("step 1 (all_reduce, sum of float32 (2,))" in text for text in texts)
        assert len(texts) == 2
