"""What a file holds, as it says: tensors, models and optimizers; and where a leaf's values come from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from devshim._layouts import put_together
from devshim._show import article, show

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from devshim._layouts import Term

__all__ = ["Source", "StoredTensor", "StoredWhole"]


class StoredTensor:
    """A tensor of a file. No dataclass: it stands in trees, as a leaf."""

    __slots__ = ("crc32", "dtype", "name", "shape")

    def __init__(self, name: str, dtype: str, shape: tuple[int, ...], crc32: int | None) -> None:
        self.name, self.dtype, self.shape, self.crc32 = name, dtype, shape, crc32

    def in_words(self) -> str:
        """Return what it is called in a message."""
        return f"the tensor {show(self.name)}"


class StoredWhole:
    """A model or optimizer of a file: its leaves by path, its layers, and what else the framework needs."""

    __slots__ = ("cls", "facts", "framework", "layers", "leaves", "title")

    def __init__(
        self,
        framework: str,
        title: str,
        cls: str,
        leaves: Mapping[str, tuple[str, StoredTensor]],
        layers: Sequence[Mapping[str, Any]],
        facts: Any,
    ) -> None:
        self.framework, self.title, self.cls = framework, title, cls
        self.leaves, self.layers, self.facts = leaves, layers, facts

    def in_words(self) -> str:
        """Return what it is called in a message."""
        return f"{article(self.cls)} of {self.title}"

    @property
    def is_model(self) -> bool:
        """Whether it holds weights, which other frameworks can use, too."""
        return bool(self.layers) or any(kind != "state" for kind, _ in self.leaves.values())


@dataclass(frozen=True)
class Source:
    """Where a leaf's values come from.

    Attributes:
        tensor: A tensor of the file, which is all of it where there is nothing more.
        terms: What several tensors bring to it, or one in another layout.
        shape: Its shape then.
    """

    tensor: StoredTensor
    terms: tuple[tuple[StoredTensor, Term], ...] = ()
    shape: tuple[int, ...] = ()

    def values(self, read: Callable[[StoredTensor], np.ndarray]) -> np.ndarray:
        """Return the values in the leaf's layout."""
        if not self.terms:
            return read(self.tensor)
        return put_together([(term, partial(read, tensor)) for tensor, term in self.terms], self.shape)
