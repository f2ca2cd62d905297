"""Marks on devshim's own functions that compilers read before devshim knows the framework.

A compiled function may be the first that calls devshim. Its compiler then reads devshim's code before an adapter is
loaded, so these marks cannot be in an adapter. Each is an attribute that a framework's public function would set; that
function cannot be called without importing the framework. Everything else about compilers is in the adapters: see
`devshim.registry.tracing`.
"""

from __future__ import annotations

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    F = TypeVar("F")

__all__ = ["constant_under_compile", "keep_source"]


def constant_under_compile(fn: F) -> F:
    """Mark a function whose result (text, a number or None) is constant for a compiled function.

    torch.compile calls a marked function, with its plain arguments, while it compiles, and keeps the result. Tracing it
    would break the graph: it locks, imports, or reads a context variable. ``torch.compiler.assume_constant_result``
    sets the same mark.
    """
    fn._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return fn


class _AsItIs:
    """The mark that ``paddle.jit.not_to_static`` sets.

    The compiler that reads bytecode instead of source ("SOT") does not need it.
    """

    not_convert = True  # the attribute that Paddle 3.0 reads

    def need_transform(self, mode: Any) -> bool:
        return bool(mode.name != "AST")

    def need_capture_control_flow(self) -> bool:
        return False


_AS_IT_IS = _AsItIs()


def keep_source(fn: Any) -> None:
    """Keep a compiler that rewrites source (Paddle's) from rewriting a function.

    The mark is needed until Paddle's adapter, which the first call loads, has excluded the whole package.
    """
    vars(fn).update(___jit_transform_options___=_AS_IT_IS, __jst_not_to_static=_AS_IT_IS)
