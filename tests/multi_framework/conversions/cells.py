"""The conversions: every pair of frameworks, every dtype, memory layout, device and kind of ``copy``.

A *cell* is one call of `ds.convert`. The cells of one source and one target make a *task*, which one process runs in
order; all of them are known before any framework is imported.
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
"""Used instead of the dtype of a strange tensor."""
COPIES = (None, False, True)

LAYOUTS = (
    *("contiguous", "transposed", "sliced", "offset", "broadcast", "0-d", "empty"),
    *("foreign memory", "reversed", "read-only", "byte-swapped", "lazy", "older kind"),
)
"""The arrangement of elements in memory; `values` has their values, and ``sides`` the frameworks that support each."""

ADDRESSES = {f"{offset} bytes on": offset for offset in range(1, 65)}
"""Layouts in C order that start this many bytes after a multiple of 64."""
EVERYWHERE = ("float32", "complex128")
"""The dtypes that are converted from each address; others from one address of each alignment, and one more."""

TRAINED = ("trainable", "computed", "parameter")
"""The ways in which a tensor requests its gradient: itself, as a result, or as a parameter or variable."""

MOVES = (("cpu", "gpu:1"), ("gpu:1", None), ("gpu:1", "cpu"), ("gpu:0", "gpu:1"))
"""A tensor's device and the requested device, with simulated GPUs; None: the tensor's own device."""

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
"""Tensors that no other framework has, and that are refused: ``strange`` makes each of them."""

ON_CARDS = ("contiguous", "transposed", "sliced", "0-d", "empty")
GRADIENT_DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64")


@dataclass(frozen=True)
class Cell:
    """One conversion.

    Attributes:
        layout: The layout of the source: one of `LAYOUTS`, `ADDRESSES` or `TRAINED`, or what is strange about it.
        dtype: The dtype of both.
        copy: The argument of `ds.convert`.
        here: The source's device.
        there: The requested device; None for none.
    """

    layout: str
    dtype: str
    copy: bool | None
    here: str = "cpu"
    there: str | None = None


@dataclass(frozen=True)
class Task:
    """All cells of one pair on the host, or on simulated GPUs."""

    source: str
    target: str
    simulated: bool

    def cells(self) -> Iterator[Cell]:
        """Yield the cells, always in this order."""
        if self.simulated:
            yield from _on_cards()
        else:
            yield from _on_host()
            strange = STRANGE[self.source] if self.source != self.target else ()
            yield from (Cell(what, NO_DTYPE, copy) for what in strange for copy in COPIES)


def tasks(simulated: bool, backends: Sequence[str] = BACKENDS) -> list[Task]:
    """Return all pairs: 36 if all frameworks are installed."""
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
            # One layout is tested with every dtype, the others with some of each size.
            for dtype in DTYPES if layout == "contiguous" else ("bool", "bfloat16", "float32", "complex128"):
                yield from (Cell(layout, dtype, copy, here, there) for copy in COPIES)
