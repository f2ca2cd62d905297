"""`follow_tensors`: a function that computes on the device of its arguments, with any default device."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from devshim.errors import UnsupportedError
from devshim.registry import mismatches
from devshim.trees.sequences import rebuild_sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from devshim.contract.backend import Backend

_PLAIN = frozenset({bool, int, float, complex, str, type(None)})


def follow_tensors(
    backend: Backend,
    name: str,
    fn: Callable[..., Any],
    move: Callable[[Any, Any], Any] | None = None,
    refusals: tuple[type[Exception], ...] = (),
) -> Callable[..., Any]:
    """Return a function that computes in the scope of the device of its tensors, or refuses those on several devices.

    In compiled functions, and in processes without GPUs, it is called directly. A tensor without dimensions on the host
    is accepted together with tensors on a GPU. If the parts of a tensor are on several devices, the framework decides.

    Args:
        backend: The adapter.
        name: The function's name, for errors.
        fn: The function.
        move: If given, called with each result and the first tensor, to bring the result to the device.
        refusals: What the function raises if it is given a tensor of another framework. Its texts are about attributes
            that such a tensor lacks, so the error that the caller gets names the framework.
    """

    @wraps(fn)
    def follow(*args: Any, **options: Any) -> Any:
        try:
            if backend.has_only_host() or backend.compiling() or backend.tracing():
                return fn(*args, **options)
            return compute(args, options)
        except refusals as error:
            clear = mismatches.other_framework_error(backend, name, (*args, *options.values()))
            if clear is None:
                raise
            raise clear from error

    def compute(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        found = list(_tensors(backend, (*args, *options.values())))
        if not found or any(backend.is_tracer(x) for x in found):
            return fn(*args, **options)
        try:
            located = {f"argument {i}": backend.device_of(x) for i, x in enumerate(found) if backend.shape(x)}
        except UnsupportedError:
            if all(backend.shards(x) is None for x in found):
                raise
            return fn(*args, **options)  # the framework computes where the parts are
        devices = set(located.values())
        if len(devices) > 1:
            raise mismatches.native_mismatch_error(located, f"xp.{name}")
        first = next((x for x in found if not devices or backend.shape(x)), found[0])
        with backend.scope(backend.device_of(first)):
            result = fn(*args, **options)
            return result if move is None else _move_result(result, first, move)

    return follow


def _tensors(backend: Backend, values: Iterable[Any]) -> Iterator[Any]:
    """Yield the tensors among arguments, and in lists and tuples among them."""
    for value in values:
        if type(value) in _PLAIN:
            continue
        if isinstance(value, (list, tuple)):
            yield from _tensors(backend, value)
        elif backend.is_tensor(type(value)):
            yield value


def _move_result(result: Any, first: Any, move: Callable[[Any, Any], Any]) -> Any:
    """Return a result, or the results in a list or tuple, each brought to the device."""
    if isinstance(result, (list, tuple)):
        return rebuild_sequence(result, [_move_result(part, first, move) for part in result])
    return move(result, first)
