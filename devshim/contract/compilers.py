"""The contract for compilers that run Python with values that have no numbers yet, and often no device: tracers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from devshim.errors import TracingError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Tensor

__all__ = ["CompilerBackend"]


class CompilerBackend:
    """The mixin of `Backend` for functions that the framework compiles; the defaults are those of no compiler."""

    title: ClassVar[str]

    def is_tracer(self, x: Tensor) -> bool:
        """Return True if ``x`` represents a value that only exists while a function is being compiled.

        Default: the framework does not compile.
        """
        return False

    def scope_of_tracers(self, xs: Sequence[Tensor]) -> AbstractContextManager[object] | None:
        """Return a scope in which a compiled function computes where its tracers will be when it is called.

        Used if `tracers_have_no_device`. The scope is that of the first tracer without a device; None if ``xs``
        contains none. Default: None.
        """
        return None

    def create_beside(self, x: Tensor | None, call: str, args: tuple[Any, ...], dtype: Any) -> Tensor:
        """Create a tensor in a function that is being compiled, on the device that a tracer will have.

        Used for ``like=`` and the ``*_like`` functions if `device_of` or the shape is unknown until the compiled
        function is called, and for the creation functions of `ds.namespace` if the method ``call`` raises
        `TracingError`.

        Args:
            x: The tracer; None for the device on which the whole function runs.
            call: The name of a creation method, such as ``"zeros"``; or ``"zeros_like"``, ``"ones_like"``,
                ``"full_like"`` or ``"empty_like"``, for a result in the shape of ``x``.
            args: The arguments of the method except for the dtype and the device; for ``"full_like"`` the value.
            dtype: The framework's dtype; with a tracer never None.

        Raises:
            TracingError: The framework cannot do this, which is the default.
        """
        msg = f"ds.{call} cannot know its device inside a function that {self.title} is compiling"
        raise TracingError(msg, "create the tensor outside, and pass it in")
