"""The contents of a file as its metadata describes them: tensors, models, optimizers, and the sources of leaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from devshim.checkpoints.layouts import put_together
from devshim.errors import CheckpointError
from devshim.errors.formatting import article, show

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from devshim.checkpoints.layouts import Term

__all__ = ["Source", "StoredObject", "StoredTensor"]


class StoredTensor:
    """A tensor of a file. It is not a dataclass, because it is a leaf in trees."""

    __slots__ = ("crc32", "dtype", "name", "shape")

    def __init__(self, name: str, dtype: str, shape: tuple[int, ...], crc32: int | None) -> None:
        self.name: str = name
        self.dtype: str = dtype
        self.shape: tuple[int, ...] = shape
        self.crc32: int | None = crc32

    def in_words(self) -> str:
        """Return its name for a message."""
        return f"the tensor {show(self.name)}"


class StoredObject:
    """A model or optimizer of a file: its leaves by path, its layers, and the framework's extra state."""

    __slots__ = ("cls", "extra_state", "framework", "layers", "leaves", "library", "title")

    def __init__(
        self,
        framework: str,
        title: str,
        cls: str,
        leaves: Mapping[str, tuple[str, StoredTensor]],
        layers: Sequence[Mapping[str, Any]],
        extra_state: Any,
        library: str | None = None,
    ) -> None:
        self.framework: str = framework
        self.title: str = title
        self.cls: str = cls
        self.library: str = framework if library is None else library  # a Keras model is the same on several frameworks
        self.leaves: Mapping[str, tuple[str, StoredTensor]] = leaves
        self.layers: Sequence[Mapping[str, Any]] = layers
        self.extra_state: Any = extra_state

    def in_words(self) -> str:
        """Return its name for a message."""
        return f"{article(self.cls)} of {self.title}"

    @property
    def is_model(self) -> bool:
        """True if it contains weights, which other frameworks can use, too."""
        return bool(self.layers) or any(kind != "state" for kind, _ in self.leaves.values())


@dataclass(frozen=True)
class Source:
    """The source of a leaf's values.

    Attributes:
        tensor: A tensor of the file; without terms, it is the only source.
        terms: The contributions of several tensors, or of one in another layout.
        shape: The leaf's shape, if there are terms.
        dtype: The integer dtype to convert to, if the file has another: Keras counts in a different one per framework.
    """

    tensor: StoredTensor
    terms: tuple[tuple[StoredTensor, Term], ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str | None = None

    def values(self, read: Callable[[StoredTensor], np.ndarray]) -> np.ndarray:
        """Return the values in the leaf's layout."""
        if self.dtype is not None:
            return self._converted(read(self.tensor))
        if not self.terms:
            return read(self.tensor)
        return put_together([(term, partial(read, tensor)) for tensor, term in self.terms], self.shape)

    def _converted(self, array: np.ndarray) -> np.ndarray:
        made = array.astype(self.dtype)
        if not (made == array).all():
            msg = f"the numbers of {show(self.tensor.name)}, {array.dtype} in the file, do not fit into {self.dtype}"
            raise CheckpointError(msg, "load the file without `into`, and set these values by hand")
        return made
