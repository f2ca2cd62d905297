"""What is converted: every pair of frameworks, every dtype, memory layout, device and kind of ``copy``.

A *cell* is one call of `ds.convert`.  The cells of one source and one target make a *task*, which a process works
through in one go; all of them are known before any framework is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

BACKENDS = ("torch", "tensorflow", "jax", "paddle", "mxnet", "numpy")
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
NO_DTYPE = "-"
"""In the place of the dtype of what is strange."""
COPIES = (None, False, True)

LAYOUTS = (
    *("contiguous", "transposed", "sliced", "offset", "broadcast", "0-d", "empty"),
    *("foreign memory", "reversed", "read-only", "byte-swapped", "lazy", "older kind"),
)
"""How the elements stand in memory; what they are is in `values`, and which framework has which in ``sides``."""

ADDRESSES = {f"{offset} bytes on": offset for offset in range(1, 65)}
"""Layouts in C order that begin so many bytes behind a multiple of 64."""
EVERYWHERE = ("float32", "complex128")
"""The dtypes that are converted from each of these; the others from one address of each alignment, and one more."""

TRAINED = ("trainable", "computed", "parameter")
"""How a tensor asks for its gradient: by itself, as a result, as a parameter or variable."""

MOVES = (("cpu", "gpu:1"), ("gpu:1", None), ("gpu:1", "cpu"), ("gpu:0", "gpu:1"))
"""Where a tensor is and where its conversion is asked to be, with simulated cards; None: where the tensor is."""

STRANGE: dict[str, tuple[str, ...]] = {
    "torch": ("sparse", "compressed sparse", "meta", "fake", "quantized", "nested"),
    "tensorflow": (
        *("string", "string variable", "empty string", "resource", "variant"),
        *("quantized", "ragged", "sparse", "indexed slices"),
    ),
    "jax": ("random key", "deleted"),
    "paddle": ("sparse",),
    "mxnet": (),
    "numpy": ("objects", "text", "bytes", "records", "raw memory", "dates", "durations", "long double", "masked"),
}
"""What no other framework has, and is refused: how each is made stands in ``strange``."""

ON_CARDS = ("contiguous", "transposed", "sliced", "0-d", "empty")
GRADIENT_DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64")


@dataclass(frozen=True)
class Cell:
    """One conversion.

    Attributes:
        layout: Of the source: one of `LAYOUTS`, `ADDRESSES` or `TRAINED`, or what is strange about it.
        dtype: Of both.
        copy: As it is passed on.
        here: The source's device.
        there: The device asked for; None for none.
    """

    layout: str
    dtype: str
    copy: bool | None
    here: str = "cpu"
    there: str | None = None


@dataclass(frozen=True)
class Task:
    """All cells of one pair on the host, or on simulated cards."""

    source: str
    target: str
    simulated: bool

    def cells(self) -> Iterator[Cell]:
        """The cells, always in this order."""
        if self.simulated:
            yield from _on_cards()
        else:
            yield from _on_host()
            strange = STRANGE[self.source] if self.source != self.target else ()
            yield from (Cell(what, NO_DTYPE, copy) for what in strange for copy in COPIES)


def tasks(simulated: bool, backends: Sequence[str] = BACKENDS) -> list[Task]:
    """All pairs: 36 where all frameworks are installed."""
    return [Task(source, target, simulated) for source in backends for target in backends]


def _on_host() -> Iterator[Cell]:
    for layout in LAYOUTS:
        for dtype in DTYPES:
            yield from (Cell(layout, dtype, copy) for copy in COPIES)
    for layout, offset in ADDRESSES.items():
        for dtype in DTYPES:
            if dtype in EVERYWHERE or offset == 36 or offset & -offset == offset:
                yield from (Cell(layout, dtype, copy) for copy in COPIES)
    for layout in TRAINED:
        for dtype in GRADIENT_DTYPES:
            yield from (Cell(layout, dtype, copy) for copy in COPIES)


def _on_cards() -> Iterator[Cell]:
    for here, there in MOVES:
        for layout in ON_CARDS:
            # One layout goes through every dtype, the others through some of each size.
            for dtype in DTYPES if layout == "contiguous" else ("bool", "bfloat16", "float32", "complex128"):
                yield from (Cell(layout, dtype, copy, here, there) for copy in COPIES)
