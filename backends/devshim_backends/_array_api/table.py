"""`complete`: a table of native functions with the standard's other functions added to it."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

from devshim_backends._array_api import elementwise, linear, manipulation, searching, statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devshim_backends._array_api.dtypes import Dtypes

    Functions = Mapping[str, Callable[..., Any]]


class Table:
    """The functions of a namespace as attributes, for functions that are written in terms of others.

    Attributes:
        dtypes: The framework's dtypes.
    """

    def __init__(self, dtypes: Dtypes, functions: Functions) -> None:
        self.dtypes = dtypes
        self.functions = dict(functions)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            return self.functions[name]
        except KeyError:
            msg = f"the table of native functions lacks {name!r}"
            raise AttributeError(msg) from None

    def number(self, value: Any, x: Any) -> Any:
        """Return a Python number as a tensor without dimensions, in the dtype to which it and ``x`` are promoted."""
        return self.scalar(value, self.dtypes.own[self.dtypes.result_name(x, value)], x)


def complete(dtypes: Dtypes, native: Functions, missing: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the native functions of a framework together with those in terms of them.

    Args:
        dtypes: The framework's dtypes.
        native: Name in the standard -> function with the standard's signature. Besides, ``cast(x, dtype)``,
            ``shape(x)``, ``scalar(value, dtype, x)``, which is on the device of ``x``, and ``iota(count, x)``, which
            counts in the default integer dtype. ``_mean`` gets only tensors of floating dtypes.
            ``_take_along_last(x, indices)``, which is optional, takes elements along the last axis, or returns None for
            tensors that it does not support.
        missing: Functions that cannot work here, because a function that they need is missing.
    """
    table = Table(dtypes, native)
    made: dict[str, Any] = dtypes.functions()
    for module in (elementwise, manipulation, statistics, searching, linear):
        made |= {fn.__name__: MethodType(fn, table) for fn in module.FUNCTIONS}
    made |= {f"linalg.{fn.__name__}": MethodType(fn, table) for fn in linear.LINALG}
    table.functions = {**made, **native}
    table.functions |= {f"linalg.{name}": table.functions[name] for name in linear.IN_BOTH}
    helpers = {"cast", "shape", "scalar", "iota"}
    return {name: found for name, found in table.functions.items() if name not in helpers | missing and name[0] != "_"}
