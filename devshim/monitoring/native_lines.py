"""The native line of the framework for a devshim call: an adapter's template with the call's arguments.

The adapters provide the templates (``snippets.py``); `devshim.monitoring.explain` prints the lines.
"""

from __future__ import annotations

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from devshim.contract.backend import Backend
    from devshim.devices.device import Device

__all__ = ["Snippet"]


class Snippet:
    """The native line of one devshim call, and what it was made of.

    Args:
        backend: The backend.
        call: The devshim call, such as ``"place"``.
        device: The device it is about, if any.
        args: Its positional arguments, shown as source text; long ones are shortened.
        dtype: The array-API name of the requested dtype, or None.
        names: Source text for further names of the template, such as ``x`` and ``path``.

    Attributes:
        call: The devshim call.
        backend: The backend.
        device: The device it is about, or None.
        template: The adapter's template; None if the framework has no line for the call.
        sources: The source text of the positional arguments, for the template's ``{0}``, ``{1}``.
        names: The source text of the template's names.
    """

    __slots__ = ("backend", "call", "device", "names", "sources", "template")

    def __init__(
        self,
        backend: Backend,
        call: str,
        device: Device | None = None,
        args: tuple[object, ...] = (),
        dtype: object = None,
        *,
        names: dict[str, str],
    ) -> None:
        self.backend: Backend = backend
        self.call: str = call
        self.device: Device | None = device
        self.template: str | None = backend.snippet(call)
        self.sources: list[str] = [_source(value) for value in args]
        named = backend.snippets.get("dtype", "{name!r}").format(name=dtype) if isinstance(dtype, str) else str(dtype)
        known = {
            "x": "x",
            "device": "" if device is None else backend.native_text(device),
            "index": str(0 if device is None else device.index),
            "args": ", ".join(self.sources),
            "dtype": "" if dtype is None else f", dtype={named}",
        }
        self.names: dict[str, str] = known | names

    @property
    def text(self) -> str:
        """The line."""
        line = self.template or f"# {self.backend.title} has no native line for ds.{self.call}"
        return line.format(*self.sources, **self.names)


def _source(value: object) -> str:
    if isinstance(value, (tuple, list)):  # an item may be a tensor or a model, whose repr is long and copies data
        items = [_source(each) for each in value[:30]]
        inside = ", ".join(items) + ("," if isinstance(value, tuple) and len(items) == 1 else "")
        text = f"[{inside}]" if isinstance(value, list) else f"({inside})"
    elif isinstance(value, (bool, int, float, complex, str, type(None))):
        text = repr(value)
    else:
        return "a" if hasattr(value, "shape") else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."
