"""Random tensors on a requested device: ``ds.random``.

The framework draws the numbers on the device: equal seeds give equal draws on one framework, not across frameworks.
After ``ds.random.seed(n, portable=True)``, and from a ``Generator(n, portable=True)``, the numbers are the same to the
bit on every framework and device.

>>> import devshim as ds
>>> ds.use("numpy")
>>> ds.random.seed(0)
>>> ds.random.normal(size=(2, 3)).shape
(2, 3)
"""

from devshim import _lazy
from devshim.tensors.generators import Generator, seed
from devshim.tensors.random import bernoulli, normal, permutation, randint, uniform

__all__ = ["Generator", "bernoulli", "normal", "permutation", "randint", "seed", "uniform"]

for _name in __all__:
    _lazy.publish(globals()[_name], __name__)


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
