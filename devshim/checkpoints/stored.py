"""The contents of a file as its metadata describes them: tensors, models, optimizers, and the sources of leaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from devshim.checkpoints.layouts import assemble
from devshim.errors import CheckpointError
from devshim.errors.formatting import show, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from devshim.checkpoints.layouts import Term
    from devshim.contract.backend import Backend, Tensor

__all__ = ["CODE", "Source", "StoredCode", "StoredObject", "StoredTensor"]


class StoredTensor:
    """A tensor of a file. It is not a dataclass, because it is a leaf in trees."""

    __slots__ = ("crc32", "dtype", "is_cut", "key", "name", "shape")

    def __init__(
        self, name: str, dtype: str, shape: tuple[int, ...], crc32: int | None, key: str = "", is_cut: bool = False
    ) -> None:
        self.name: str = name
        self.dtype: str = dtype
        self.shape: tuple[int, ...] = shape
        self.crc32: int | None = crc32
        self.key: str = key  # the generator of a random key, whose data this is; empty for other tensors
        self.is_cut: bool = is_cut  # saved as `Rows`

    @property
    def is_scalar(self) -> bool:
        """True if it has no axes; the data of a random key has one more than the key."""
        return len(self.shape) == bool(self.key)

    def in_words(self) -> str:
        """Return its name for a message."""
        return f"the tensor {show(self.name)}"

    def form(self) -> str:
        """Return its dtype and shape for a message."""
        return f"{self.dtype} of shape {self.shape}{f' (the data of a key of {self.key})' if self.key else ''}"

    def source_for(self, backend: Backend, x: Tensor, rows: tuple[int, int] | None = None) -> Source | None:
        """Return the source of new values for a tensor; None if the dtype, the shape or the generator differs.

        Args:
            backend: The framework of ``x``.
            x: The tensor.
            rows: The first row, and the one after the last, of the tensor in the file that ``x`` has; None for all.
        """
        key = backend.random_key(x)
        generator, data = ("", x) if key is None else key
        shape = self.shape if rows is None else (rows[1] - rows[0], *self.shape[1:])
        if (backend.dtype_name(data), backend.shape(data)) != (self.dtype, shape):
            return None
        return None if generator and self.key not in ("", generator) else Source(self, key=generator, rows=rows)


class StoredCode:
    """A function, class or marker in a saved object. The file has only its place: a file contains no code."""

    def in_words(self) -> str:
        """Return its name for a message."""
        return "a function or class, which is not in the file"


CODE = StoredCode()
"""The only instance."""


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
        return f"{with_article(self.cls)} of {self.title}"

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
        key: The generator of the random key to make of the data; empty for any other tensor.
        rows: The first row, and the one after the last, if only some rows are wanted.
    """

    tensor: StoredTensor
    terms: tuple[tuple[StoredTensor, Term], ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str | None = None
    key: str = ""
    rows: tuple[int, int] | None = None

    def values(self, read: Callable[[StoredTensor], np.ndarray]) -> np.ndarray:
        """Return the values in the leaf's layout."""
        if self.dtype is not None:
            return self._convert(read(self.tensor))
        if not self.terms:
            return read(self.tensor)
        return assemble([(term, partial(read, tensor)) for tensor, term in self.terms], self.shape)

    def _convert(self, array: np.ndarray) -> np.ndarray:
        made = array.astype(self.dtype)
        if not (made == array).all():
            msg = f"the numbers of {show(self.tensor.name)}, {array.dtype} in the file, do not fit into {self.dtype}"
            raise CheckpointError(msg, "load the file without `into`, and set these values by hand")
        return made
