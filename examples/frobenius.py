"""Norms of many matrix products, logged one by one or transferred to the host together: the same code everywhere.

The textbooks' exercise: multiply 100x100 matrices 1,000 times, and log the Frobenius norm of each result. Either read
each norm immediately, so that the host waits for the device each time, or use a log that stays on the device and is
read at the end.

    python examples/frobenius.py torch
    python examples/frobenius.py jax --gpus 2        (on simulated GPUs: right numbers, counted copies, no real speed)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import devshim as ds


class Products:
    """Norms of products of two random matrices on a device.

    Args:
        device: The device on which everything is computed.
        size: The number of rows and columns of the matrices.
    """

    def __init__(self, device: ds.Device, size: int = 100) -> None:
        self.device = device
        self._left = ds.random.normal(size=(size, size), dtype="float32", device=device)
        self._right = ds.random.normal(size=(size, size), dtype="float32", device=device)
        self._row = ds.ones((1, size), dtype="float32", device=device)
        self._column = ds.ones((size, 1), dtype="float32", device=device)

    def norm(self) -> Any:
        """Multiply once, and return the product's Frobenius norm, of shape (1, 1), on the device.

        This uses operators only, because they are the only calls that these six frameworks spell the same: a matrix is
        summed by multiplying it with a row and a column of ones.
        """
        product = self._left @ self._right
        return (self._row @ (product * product) @ self._column) ** 0.5

    def one_by_one(self, count: int) -> np.ndarray:
        """Return the norms of ``count`` products, each read by the host as soon as it is requested."""
        return np.array([ds.to_numpy(self.norm()).item() for _ in range(count)], dtype="float32")

    def at_the_end(self, count: int) -> np.ndarray:
        """Return the norms of ``count`` products, stored on the device and read in one transfer."""
        log = ds.MetricLog(self.device, capacity=count)
        for _ in range(count):
            log.append(self.norm())
        return log.flush()


def measured(way: Callable[[int], np.ndarray], count: int) -> tuple[np.ndarray, float, int]:
    """Return the norms from one method, the seconds it takes, and how many transfers it makes."""
    with ds.transfers() as copies:  # this call also compiles what is compiled at first use
        way(count)
    begun = time.perf_counter()
    norms = way(count)
    return norms, time.perf_counter() - begun, copies.count


def main(arguments: list[str] | None = None) -> None:
    """Run the exercise both ways and print what each takes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("backend", help="the framework: numpy, torch, tensorflow, jax, paddle or mxnet")
    parser.add_argument("--products", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--gpus", type=int, default=0, help="run on so many simulated GPUs")
    options = parser.parse_args(arguments)
    ds.use(options.backend)
    if options.gpus:
        ds.simulate(options.gpus)
    products = Products(ds.try_gpu())
    one_by_one = measured(products.one_by_one, options.products)
    at_the_end = measured(products.at_the_end, options.products)
    np.testing.assert_allclose(one_by_one[0], at_the_end[0])
    kind = " (simulated)" if ds.describe(products.device).simulated else ""
    print(f"{options.products} products on {products.device}{kind}, {options.backend}:")
    for words, (_, seconds, copies) in (("one by one", one_by_one), ("at the end", at_the_end)):
        print(f"  {words}: {copies:>5} transfer{'s' if copies != 1 else ' '}, {seconds * 1e3:8.1f} ms")


if __name__ == "__main__":
    main()
