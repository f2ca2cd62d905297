"""A simulated GPU that was removed while a tensor was on it, whose last tensor has died."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import devshim as ds


@contextmanager
def forgotten_gpu(shown: int, in_cycle: bool, make: Callable[[], object]) -> Iterator[None]:
    """Show fewer GPUs than before in a block; the last tensor on the removed one has died before it begins.

    Args:
        shown: How many GPUs are shown: the removed one has this number.
        in_cycle: True if the last tensor dies in a reference cycle.
        make: Makes a tensor on the native device of the removed GPU, which is refused while a tensor is left there.
    """
    left: list[object] = [ds.ones(3, device=ds.gpu(shown))]
    with ds.simulate(shown):
        with pytest.raises(ds.SimulationError, match=f"gpu:{shown} was removed"):
            make()
        gc.collect()  # the error's traceback
        if in_cycle:
            left.append(left)
        del left
        yield
