"""A program's own random generators: `Generator`, and the portable one that `seed` can choose.

A generator stores two integers: its seed, and the number of draws so far. Each draw gets a new seed from both,
so that a checkpoint of a generator is small on every framework, and threads that share one cannot damage it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.contract import capabilities
from devshim.devices import parsing
from devshim.devices.device import CPU
from devshim.errors.messages import bad_argument
from devshim.registry import current, start_failures, tracing
from devshim.tensors import arguments, draws
from devshim.tensors.draws import Result
from devshim.transfers import engine, observing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike
    from devshim.tensors.arguments import Shape

__all__ = ["SOURCE", "Generator", "seed"]

_OUTSIDE = "make it outside: here it would be made once, while the function is compiled"
SOURCE: Generator | None = None
"""The portable generator of the functions of `devshim.random`; None: the framework's own generators."""


class Generator:
    """An independent random generator, from which nothing else draws.

    Args:
        seed: From 0 to 2**64 - 1. Equal seeds give equal draws, in the same order, on devices of one kind.
        device: The device of each draw; without it, the device of `on` at the time of the draw, or the CPU.
        portable: True: the numbers are the same to the bit on every framework, device and machine. They are computed
            on the host and copied to the device. False: the framework draws on the device, which is faster.

    Without ``portable``, the numbers depend on the framework, its version and the kind of device, and the framework's
    own generators are not used or changed. Each draw is made by the current framework, or by the framework of ``like``.
    The methods are those of `devshim.random`, without ``device``: the generator's device takes precedence over that of
    ``like``.

    Threads may share a generator: each draw is correct, but timing decides which thread gets which draw. Give
    each thread its own to repeat a run.

    The portable numbers are defined to the bit. A word is 64 bits of Philox 4x64-10 with the key ``(seed, 0)``, whose
    counter starts at ``n * 2**128`` for draw number ``n``, counted from 0. A fraction is the upper 53 bits of a word,
    divided by ``2**53``.

    - `uniform`: ``low + u * (high - low)``, one word each; ``u`` is a fraction for float64, and has only the upper 24
      bits for the other dtypes. A result that rounding moved out of ``[low, high)`` is the nearest number inside.
    - `normal`: ``loc + scale * z`` by Box and Muller: two fractions ``u`` and ``v`` give two numbers ``z``,
      ``r * cos(a)`` and then ``r * sin(a)``, with ``r = sqrt(-2 * log(1 - u))`` and ``a = 2 * pi * v``. Logarithm,
      sine and cosine are computed by series with the operations that IEEE 754 defines to the bit.
    - `randint`: the upper bits of each word, as few as the range needs; values outside of the range are skipped, so
      that all are equally probable.
    - `permutation`: the integers, sorted by one word each.
    - `bernoulli`: a fraction for each, which is less than ``p``.

    Floats are computed in float64 and rounded to float32, and from there to float16 or bfloat16. The default dtypes are
    float32, int64, and bool for `bernoulli`, unless `set_default_dtype` names others.

    Raises:
        ArgumentError: The seed is not an integer in its range.
        DeviceNotFoundError: The current framework does not have the device.
        UnsupportedError: The framework has no generators of this kind (MXNet), but ``portable`` is not True.
        TracingError: The generator is made or used inside a compiled function.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> generator = ds.random.Generator(0, portable=True)
        >>> generator.randint(0, 100, size=4).tolist()
        [1, 30, 14, 72]
        >>> state = generator.get_state()
        >>> first = generator.normal(size=(784, 10))
        >>> generator.set_state(state)
        >>> bool((generator.normal(size=(784, 10)) == first).all())
        True
    """

    def __init__(self, seed: int, device: DeviceLike | None = None, portable: bool = False) -> None:
        tracing.refuse("random.Generator", _OUTSIDE)
        self._seed = _check_seed("seed", seed, 64, "ds.random.Generator")
        _check_flag(portable, "ds.random.Generator")
        self.portable: bool = portable
        self.device: Device | None = None if device is None else parsing.device_of_argument(device)
        self._draws = 0
        self._lock = threading.Lock()
        if self.device is not None:
            engine.require(current.current(), self.device)
        if not portable:
            self.require(current.current())

    def uniform(
        self,
        low: float = 0,
        high: float = 1,
        size: Shape | None = None,
        *,
        dtype: object = None,
        like: Tensor | None = None,
    ) -> Tensor:
        """Return values drawn uniformly from ``[low, high)``: see `devshim.random.uniform`."""
        return engine.make(*draws.uniform(low, high, size, self._result(dtype, like)))

    def normal(
        self,
        loc: float = 0,
        scale: float = 1,
        size: Shape | None = None,
        *,
        dtype: object = None,
        like: Tensor | None = None,
    ) -> Tensor:
        """Return values drawn from a normal distribution: see `devshim.random.normal`."""
        return engine.make(*draws.normal(loc, scale, size, self._result(dtype, like)))

    def randint(
        self,
        low: int,
        high: int | None = None,
        size: Shape | None = None,
        *,
        dtype: object = None,
        like: Tensor | None = None,
    ) -> Tensor:
        """Return integers drawn uniformly from ``[low, high)``: see `devshim.random.randint`."""
        return engine.make(*draws.randint(low, high, size, self._result(dtype, like)))

    def permutation(self, n: int, *, dtype: object = None, like: Tensor | None = None) -> Tensor:
        """Return the integers below ``n`` in random order: see `devshim.random.permutation`."""
        return engine.make(*draws.permutation(n, self._result(dtype, like)))

    def bernoulli(
        self, p: float = 0.5, size: Shape | None = None, *, dtype: object = None, like: Tensor | None = None
    ) -> Tensor:
        """Return booleans that are True with probability ``p``: see `devshim.random.bernoulli`."""
        return engine.make(*draws.bernoulli(p, size, self._result(dtype, like)))

    def get_state(self) -> dict[str, int]:
        """Return the state as a dict of three integers: ``seed``, ``draws`` so far, and ``portable`` (0 or 1).

        `devshim.save` stores it in a tree together with tensors.
        """
        return {"seed": self._seed, "draws": self._draws, "portable": int(self.portable)}

    def set_state(self, state: Mapping[str, int]) -> None:
        """Continue as the generator that `get_state` was called on.

        Args:
            state: The result of `get_state`.

        Raises:
            ArgumentError: It is not a generator's state, or comes from a generator with another ``portable``.
        """
        seed, drawn = _read_state(state, self.portable)
        with self._lock:
            self._seed, self._draws = seed, drawn

    def require(self, backend: Backend) -> None:
        """Raise `UnsupportedError` if a framework cannot draw from a generator that is not portable."""
        if not self.portable and "generator" in backend.gaps:
            raise capabilities.unsupported_error(backend, "generator")

    def next_words(self) -> tuple[int, int]:
        """Return the seed and the number of the next draw, and count it."""
        with self._lock:
            self._draws += 1
            return self._seed, self._draws - 1

    def next_seed(self) -> int:
        """Return the seed of the next draw, of 64 bits, and count it."""
        return int(np.random.SeedSequence(self.next_words()).generate_state(1, np.uint64)[0])

    def _result(self, dtype: object, like: Tensor | None) -> Result:
        return Result(dtype, self.device, like, self)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.get_state(), "device": self.device}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._seed, self._draws, self.device = state["seed"], state["draws"], state["device"]
        self.portable, self._lock = bool(state["portable"]), threading.Lock()

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, device={self.device}, portable={self.portable}, draws={self._draws})"


def _check_seed(name: str, value: object, bits: int, call: str) -> int:
    """Return a seed as an int below ``2**bits``."""
    found = arguments.integer(name, value)
    if not 0 <= found < 2**bits:
        raise bad_argument(name, value, f"between 0 and 2**{bits} - 1", f"{call}({found % 2**bits})")
    return found


def _check_flag(portable: object, call: str) -> None:
    if type(portable) is not bool:
        raise bad_argument("portable", portable, "True or False", f"{call}(0, portable=True)")


def _read_state(state: Any, portable: bool) -> tuple[int, int]:
    """Return the seed and the number of draws of a state."""
    hint = "pass the result of get_state() of a generator of this kind"
    try:
        seed, drawn, kind = (arguments.integer(name, state[name]) for name in ("seed", "draws", "portable"))
    except (KeyError, TypeError, IndexError) as error:
        raise bad_argument("state", state, "a dict with the integers seed, draws and portable", hint) from error
    if not (0 <= seed < 2**64 and 0 <= drawn < 2**64 and kind in (0, 1)):
        raise bad_argument("state", state, "the state of a generator", hint)
    if bool(kind) is not portable:
        wanted = f"the state of a generator with portable={portable}"
        raise bad_argument("state", state, wanted, f"make the generator with portable={bool(kind)}")
    return seed, drawn


def seed(n: int, *, portable: bool = False) -> None:
    """Restart the current framework's generators on every device.

    Args:
        n: The seed, from 0 to 2**32 - 1; with ``portable=True``, to 2**64 - 1.
        portable: True: from now on the functions of `devshim.random` draw the same numbers on every framework and
            device, those of ``Generator(n, portable=True)``, in all threads of the process. False: the framework draws
            them, even after an earlier ``portable=True``.

    The framework's own draws also restart, not only devshim's draws. Their seed is the lower 32 bits of ``n``.

    Raises:
        ArgumentError: The seed is not an integer in its range.
        TracingError: The call is inside a compiled function.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.random.seed(0, portable=True)
        >>> ds.random.randint(0, 100, size=4).tolist()
        [1, 30, 14, 72]
        >>> ds.random.seed(0)
    """
    global SOURCE
    tracing.refuse("random.seed", "seed outside: here it would be done once, while the function is compiled")
    _check_flag(portable, "ds.random.seed")
    given = _check_seed("n", n, 64 if portable else 32, "ds.random.seed")
    chosen = Generator(given, portable=True) if portable else None
    value = given % 2**32
    backend = current.current()
    observing.show_call(backend, "seed", None, (value,))
    start_failures.ask_device(backend, CPU, lambda _: backend.seed(value))
    SOURCE = chosen
