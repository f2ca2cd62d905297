"""The GPU chapter of *Dive into Deep Learning* as one framework-neutral script.

The book contains the chapter once per framework, with different code and different behaviour.  Here it is written
once: read the functions from top to bottom.  The tour shows the lines of each function between the docstring and the
``return``; the ``return`` gives the value to show, and a function that checks the step's condition.
"""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Any

import devshim as ds
from devshim.cli._steps import Step, refused, step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devshim.cli._steps import Outcome

__all__ = ["CHAPTER", "GIVEN"]

GIVEN: Mapping[str, Callable[[], Any]] = {
    "x": lambda: ds.asarray([1.0, 2.0, 3.0], device="cpu"),
    "X": lambda: ds.ones((2, 3), device=ds.try_gpu()),
    "Y": lambda: ds.full((2, 3), 0.5, device=ds.try_all_gpus()[-1]),
    "Z": lambda: ds.ones((2, 3), device=ds.try_all_gpus()[-1]),
}
"""The arguments of the steps: x on the host, X on the first GPU, Y and Z on the last; without GPUs on the host."""


@step("Count the cards", must="the count is the number of cards listed")
def count() -> Outcome:
    """Every program starts by asking how many cards there are; none is an answer, not an error."""
    n = ds.device_count()
    return n, lambda: n == len(ds.devices("gpu"))


@step("Name a device", must="every spelling names the same device")
def name() -> Outcome:
    """A device has one name, whichever framework's spelling is at hand."""
    named = ds.device("gpu:1"), ds.device("cuda:1"), ds.device("/GPU:1"), ds.gpu(1)
    return named, lambda: set(named) == {ds.Device("gpu", 1)} and ds.device("cpu:0") == ds.cpu()


@step("Take a card, or the CPU", must="a card that is not there gives the CPU, and no list is empty")
def take() -> Outcome:
    """try_gpu and try_all_gpus let the same code run with many cards, one, or none."""
    taken = ds.try_gpu(), ds.try_gpu(99), ds.try_all_gpus()
    return taken, lambda: taken == (all_or_host()[0], ds.cpu(), all_or_host())


@step("Tensors start on the CPU", must="without device= it is on the CPU, on every framework")
def start() -> Outcome:
    """Unless told otherwise a tensor is in main memory; TensorFlow, JAX and Paddle would take card 0 by themselves."""
    x = ds.asarray([1.0, 2.0, 3.0])
    return x, lambda: ds.device_of(x) == ds.cpu()


@step("Store a tensor on a card", must="it is where device= says")
def store() -> Outcome:
    """A tensor is made on the card, without a copy from main memory, and uses that card's memory alone."""
    X = ds.ones((2, 3), device=ds.try_gpu())
    return X, lambda: ds.device_of(X) == ds.try_gpu() and values(X) == [[1.0] * 3] * 2


@step("Create on the second card", must="it is on gpu:1", cards=2)
def create() -> Outcome:
    """The same on any card: random numbers are drawn where they are wanted."""
    Y = ds.random.uniform(size=(2, 3), device="gpu:1")
    return Y, lambda: ds.device_of(Y) == ds.gpu(1) and all(0 <= v < 1 for row in values(Y) for v in row)


@step("Copy to another card", must="Z holds X's values on gpu:1, and X stays where it was", cards=2)
def copy(X: Any) -> Outcome:
    """To add X and Y they must be on one device, so X is copied to the card of Y."""
    Z = ds.place(X, "gpu:1")
    return Z, lambda: ds.device_of(Z) == ds.gpu(1) and ds.device_of(X) == ds.gpu(0) and values(Z) == values(X)


@step("Compute where the data are", must="the sum is on the device of its operands")
def compute(Y: Any, Z: Any) -> Outcome:
    """Operands on one device give a result on that device; TensorFlow by itself would compute on its default device."""
    S = ds.run(add, Y, Z)
    return S, lambda: ds.device_of(S) == ds.device_of(Y) and values(S) == [[1.5] * 3] * 2


@step("What is there stays", must="place returns the very same object")
def identity(Z: Any) -> Outcome:
    """A tensor that is on the device already is not copied: moving it in a loop costs nothing."""
    same = ds.place(Z, ds.device_of(Z))
    return compared(same, Z), lambda: same is Z


@step("A copy on demand", must="copy=True gives another object with equal values")
def demand(Z: Any) -> Outcome:
    """When new memory is wanted, it is asked for by name."""
    new = ds.place(Z, ds.device_of(Z), copy=True)
    return compared(new, Z), lambda: new is not Z and [values(new), ds.device_of(new)] == [values(Z), ds.device_of(Z)]


@step("Host and card do not mix", must="refused, and both tensors are named with their devices", cards=1)
def hosted(x: Any, X: Any) -> Outcome:
    """Nothing is moved behind your back: a slow transfer you did not write would stay unseen."""
    with refused(ds.DeviceMismatchError) as refusal:
        ds.require_same_device(x=x, X=X)
    return refusal, lambda: refusal.rightly("x is on cpu", "X is on gpu:0")


@step("Two cards do not mix", must="refused before anything is computed", cards=2)
def mixed(X: Any, Y: Any) -> Outcome:
    """An operation on tensors of two cards is an error on every framework; MXNet and Paddle would not notice."""
    with refused(ds.DeviceMismatchError) as refusal:
        ds.run(add, X, Y)
    return refusal, lambda: refusal.rightly("on gpu:0", f"on {ds.device_of(Y)}")


@step("A card that is not there", must="refused at the call, with how many there are and why")
def missing() -> Outcome:
    """No silent fallback: TensorFlow would use the CPU, and PyTorch would accept the name and fail later."""
    with refused(ds.DeviceNotFoundError) as refusal:
        ds.zeros(3, device="gpu:99")
    return refusal, lambda: refusal.rightly("gpu:99", ds.device_count())


@step("Back to NumPy", must="the same values in main memory, as a NumPy array")
def back(X: Any) -> Outcome:
    """Printing a tensor or turning it into a NumPy array brings it to main memory and waits for it: do it seldom."""
    a = ds.to_numpy(X)
    return a, lambda: type(a).__module__ == "numpy" and a.tolist() == [[1.0] * 3] * 2


def all_or_host() -> list[ds.Device]:
    """Return the expected result of try_all_gpus, computed in another way."""
    return [ds.gpu(i) for i in range(ds.device_count())] or [ds.cpu()]


def compared(new: Any, Z: Any) -> str:
    """Return, in words, whether two names refer to one object."""
    return "the same object as Z" if new is Z else "another object than Z"


def values(x: Any) -> Any:
    """Return a tensor's values as nested lists."""
    return ds.to_numpy(x).tolist()


CHAPTER: list[Step] = [found for found in list(globals().values()) if isinstance(found, Step)]
"""The steps in the order of this file."""
