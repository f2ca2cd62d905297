"""The GPU chapter of *Dive into Deep Learning* as one framework-neutral script.

The book contains the chapter once per framework, with different code and different behaviour. Here it is written
once: read the functions from top to bottom. The tour shows the lines of each function between the docstring and the
``return``; the ``return`` gives the value to show, and a function that checks the step's condition.
"""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Any

import devshim as ds
from devshim.cli.steps import Step, expect_error, step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devshim.cli.steps import Outcome

__all__ = ["ARGUMENTS", "CHAPTER"]

ARGUMENTS: Mapping[str, Callable[[], Any]] = {
    "x": lambda: ds.asarray([1.0, 2.0, 3.0], device="cpu"),
    "X": lambda: ds.ones((2, 3), device=ds.try_gpu()),
    "Y": lambda: ds.full((2, 3), 0.5, device=ds.try_all_gpus()[-1]),
    "Z": lambda: ds.ones((2, 3), device=ds.try_all_gpus()[-1]),
}
"""The arguments of the steps: x on the host, X on the first GPU, Y and Z on the last; without GPUs on the host."""


@step("Count the GPUs", condition="the count is the number of GPUs in the list")
def count() -> Outcome:
    """Every program starts by asking how many GPUs there are; 0 is a valid answer, not an error."""
    n = ds.device_count()
    return n, lambda: n == len(ds.devices("gpu"))


@step("Name a device", condition="every spelling names the same device")
def name() -> Outcome:
    """A device has one name, and devshim understands every framework's spelling of it."""
    named = ds.device("gpu:1"), ds.device("cuda:1"), ds.device("/GPU:1"), ds.gpu(1)
    return named, lambda: set(named) == {ds.Device("gpu", 1)} and ds.device("cpu:0") == ds.cpu()


@step("Get a GPU, or the CPU", condition="a missing GPU gives the CPU, and no list is empty")
def take() -> Outcome:
    """With try_gpu and try_all_gpus, the same code runs with many GPUs, with one, and without any."""
    taken = ds.try_gpu(), ds.try_gpu(99), ds.try_all_gpus()
    return taken, lambda: taken == (all_or_host()[0], ds.cpu(), all_or_host())


@step("Tensors start on the CPU", condition="without device=, the tensor is on the CPU, on every framework")
def start() -> Outcome:
    """Without a device, a tensor is in main memory; TensorFlow, JAX and Paddle would use GPU 0 by default."""
    x = ds.asarray([1.0, 2.0, 3.0])
    return x, lambda: ds.device_of(x) == ds.cpu()


@step("Store a tensor on a GPU", condition="the tensor is on the device of device=")
def store() -> Outcome:
    """A tensor is created on the GPU, without a copy from main memory, and uses only that GPU's memory."""
    X = ds.ones((2, 3), device=ds.try_gpu())
    return X, lambda: ds.device_of(X) == ds.try_gpu() and values(X) == [[1.0] * 3] * 2


@step("Create on the second GPU", condition="the tensor is on gpu:1", cards=2)
def create() -> Outcome:
    """The same works on any GPU: random numbers are drawn on the device that needs them."""
    Y = ds.random.uniform(size=(2, 3), device="gpu:1")
    return Y, lambda: ds.device_of(Y) == ds.gpu(1) and all(0 <= v < 1 for row in values(Y) for v in row)


@step("Copy to another GPU", condition="Z has X's values on gpu:1, and X is still on gpu:0", cards=2)
def copy(X: Any) -> Outcome:
    """To add X and Y, both must be on one device, so X is copied to the GPU of Y."""
    Z = ds.place(X, "gpu:1")
    return Z, lambda: ds.device_of(Z) == ds.gpu(1) and ds.device_of(X) == ds.gpu(0) and values(Z) == values(X)


@step("Compute where the data is", condition="the sum is on the device of its operands")
def compute(Y: Any, Z: Any) -> Outcome:
    """Operands on one device give a result on that device; plain TensorFlow would compute on its default device."""
    S = ds.run(add, Y, Z)
    return S, lambda: ds.device_of(S) == ds.device_of(Y) and values(S) == [[1.5] * 3] * 2


@step("A tensor that is there stays", condition="place returns the same object")
def identity(Z: Any) -> Outcome:
    """A tensor that is on the device already is not copied: moving it in a loop costs nothing."""
    same = ds.place(Z, ds.device_of(Z))
    return compared(same, Z), lambda: same is Z


@step("A copy on demand", condition="copy=True gives another object with equal values")
def demand(Z: Any) -> Outcome:
    """A program that needs new memory asks for it explicitly."""
    new = ds.place(Z, ds.device_of(Z), copy=True)
    return compared(new, Z), lambda: new is not Z and [values(new), ds.device_of(new)] == [values(Z), ds.device_of(Z)]


@step("Host and GPU do not mix", condition="an error names both tensors and their devices", cards=1)
def hosted(x: Any, X: Any) -> Outcome:
    """Nothing is moved implicitly: a slow transfer that is not in the code would go unnoticed."""
    with expect_error(ds.DeviceMismatchError) as refusal:
        ds.require_same_device(x=x, X=X)
    return refusal, lambda: refusal.mentions("x is on cpu", "X is on gpu:0")


@step("Two GPUs do not mix", condition="an error is raised before anything is computed", cards=2)
def mixed(X: Any, Y: Any) -> Outcome:
    """An operation on tensors of two GPUs is an error on every framework; MXNet and Paddle would not notice."""
    with expect_error(ds.DeviceMismatchError) as refusal:
        ds.run(add, X, Y)
    return refusal, lambda: refusal.mentions("on gpu:0", f"on {ds.device_of(Y)}")


@step("A GPU that does not exist", condition="the call raises an error with the number of GPUs and the reason")
def missing() -> Outcome:
    """No silent fallback: TensorFlow would use the CPU, and PyTorch would accept the name and fail later."""
    with expect_error(ds.DeviceNotFoundError) as refusal:
        ds.zeros(3, device="gpu:99")
    return refusal, lambda: refusal.mentions("gpu:99", ds.device_count())


@step("Back to NumPy", condition="the same values in main memory, as a NumPy array")
def back(X: Any) -> Outcome:
    """Printing a tensor, or converting it to NumPy, waits for it and copies it to main memory: do it rarely."""
    a = ds.to_numpy(X)
    return a, lambda: type(a).__module__ == "numpy" and a.tolist() == [[1.0] * 3] * 2


def all_or_host() -> list[ds.Device]:
    """Return the expected result of try_all_gpus, computed in another way."""
    return [ds.gpu(i) for i in range(ds.device_count())] or [ds.cpu()]


def compared(new: Any, Z: Any) -> str:
    """Return, in words, whether two names refer to one object."""
    return "the same object as Z" if new is Z else "not the same object as Z"


def values(x: Any) -> Any:
    """Return a tensor's values as nested lists."""
    return ds.to_numpy(x).tolist()


CHAPTER: list[Step] = [found for found in list(globals().values()) if isinstance(found, Step)]
"""The steps in the order of this file."""
