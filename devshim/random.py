"""Random tensors, drawn on the device that they are asked for: ``ds.random``.

The framework draws the numbers: equal seeds give equal draws on one framework, not across frameworks.

>>> import devshim as ds
>>> ds.use("numpy")
>>> ds.random.seed(0)
>>> ds.random.normal(size=(2, 3)).shape
(2, 3)
"""

from devshim.tensors.random import normal, seed, uniform

__all__ = ["normal", "seed", "uniform"]


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
