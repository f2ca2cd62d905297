"""The blocks of a model that nests modules, found by rules that the adapter of its framework gives.

A chain of modules is opened: each of its links is a block, which stays on one device. A link that is not a chain itself
stays whole, but stores the blocks inside it, for a model in which that link has more bytes than a device's share.

A model can name classes whose modules stay whole as long as they fit on some device, in the attribute that Hugging
Face's models have: ``_no_split_modules = ["LlamaDecoderLayer"]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from devshim.contract.models import Block

__all__ = ["BlockRules", "join_path", "whole_classes"]

NAMES = "_no_split_modules"
"""The attribute of a module with the names of the classes that should not be cut."""


def join_path(path: str, name: object) -> str:
    """Return the key path of a part; the path of a whole model or optimizer is empty, and so may be a part's name."""
    return f"{path}.{name}" if path and name != "" else path or str(name)


def whole_classes(modules: Iterable[Any]) -> frozenset[str]:
    """Return the names of the classes that any of these modules, or its class, says should not be cut."""
    return frozenset(name for module in modules for name in getattr(module, NAMES, None) or ())


@dataclass(frozen=True)
class BlockRules:
    """The rules of a framework: how its modules are nested, and which of them are cut.

    Attributes:
        own_names: Return the names of the tensors that a module has besides those of its children.
        children: Return the names and modules of a module's children, in their order.
        is_chain: True if a module only calls its children, one after the other.
        can_be_cut: True if a module calls its children, so that they can be on other devices than the module.
    """

    own_names: Callable[[Any], Iterable[str]]
    children: Callable[[Any], Iterable[tuple[str, Any]]]
    is_chain: Callable[[Any], bool]
    can_be_cut: Callable[[Any], bool]

    def blocks(self, model: Any) -> list[Block]:
        """Return the blocks of a model; a model that cannot be cut is one block."""
        kept = whole_classes(module for _, module in self.walk("", model))
        return list(self._open("", model, kept)) if self.can_be_cut(model) else [self._block("", model, kept)]

    def walk(self, path: str, module: Any) -> Iterator[tuple[str, Any]]:
        """Yield a module and all modules in it, with their key paths; a shared module under each of its paths."""
        yield path, module
        for name, child in self.children(module):
            yield from self.walk(join_path(path, name), child)

    def _open(self, path: str, module: Any, kept: frozenset[str]) -> Iterator[Block]:
        """Yield the blocks of a module: its own tensors first, then its children; chains among them are opened."""
        own = tuple(join_path(path, name) for name in self.own_names(module))
        if own:
            yield Block(own[0], own)
        for name, child in self.children(module):
            below = join_path(path, name)
            if self.is_chain(child) and type(child).__name__ not in kept:
                yield from self._open(below, child, kept)
            elif (block := self._block(below, child, kept)).leaves:
                yield block

    def _block(self, path: str, module: Any, kept: frozenset[str]) -> Block:
        leaves = tuple(join_path(at, name) for at, each in self.walk(path, module) for name in self.own_names(each))
        inside = tuple(self._open(path, module, kept)) if self.can_be_cut(module) else ()
        return Block.of(path, leaves, inside, whole=type(module).__name__ in kept)
