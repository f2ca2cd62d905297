"""The magics of one line: ``%devices``, ``%use torch`` and ``%simulate 2``."""

from __future__ import annotations

import devshim as ds
from devshim import _html
from devshim.errors import ArgumentError, DevshimError

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from typing import Any

    from devshim.devices.device import Device

__all__ = ["DeviceTable", "devices", "simulate", "use"]

_HEAD = ("device", "native", "name", "memory", "used")


class DeviceTable:
    """The devices of the current framework, as `devices` displays them.

    Args:
        title: The framework's name and version.
        rows: The cells of each device, with True at the end if it is simulated.
    """

    def __init__(self, title: str, rows: list[tuple[str, str, str, str, str, bool]]) -> None:
        self._title = title
        self._rows = rows

    def __repr__(self) -> str:
        shown = [_HEAD, *((f"{row[0]}{' (simulated)' * row[-1]}", *row[1:-1]) for row in self._rows)]
        widths = [max(len(row[i]) for row in shown) for i in range(len(_HEAD))]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in shown)
        return "\n".join([self._title, "", *lines])

    def _repr_html_(self) -> str:
        rows = [(_html.join(row[0], _html.badge("simulated") if row[-1] else ""), *row[1:-1]) for row in self._rows]
        return _html.block(_html.table(_HEAD, rows, right={3, 4}, title=self._title))


def devices(line: str = "") -> DeviceTable:
    """Show the devices of the current framework.

    %devices         all of them
    %devices gpu     those of one kind
    """
    kind = line.strip() or None
    name = ds.framework().__name__
    info = ds.backends()[name]
    return DeviceTable(f"{info.title} {info.version or ''}".rstrip(), [_row(each) for each in ds.devices(kind)])


def _row(device: Device) -> tuple[str, str, str, str, str, bool]:
    about = ds.describe(device)
    total = "" if about.total_memory is None else _html.size(about.total_memory)
    try:
        used = ds.memory(device).used
    except DevshimError:  # a framework that cannot know
        used = None
    native = device.native()
    shown = native if isinstance(native, str) else str(native)
    return (str(device), shown, about.name, total, "" if used is None else _html.size(used), about.simulated)


def use(line: str) -> None:
    """Choose the framework of this notebook.

    %use torch     as ds.use("torch")
    """
    names = line.replace('"', " ").replace("'", " ").split()
    if len(names) != 1:
        known = ", ".join(ds.backends())
        msg = "%use takes the name of one framework" + (f", and was given {line.strip()!r}" if names else "")
        raise ArgumentError(msg, f"installed are {known}")
    ds.use(names[0])
    info = ds.backends()[ds.framework().__name__]
    print(f"{info.title} {info.version or ''}".rstrip(), "is the current framework")


def simulate(line: str) -> None:
    """Simulate GPUs on a machine that has none.

    %simulate            two GPUs
    %simulate 4          four
    %simulate 2 4GiB     two, with 4 GiB of memory each
    %simulate off        none
    """
    words = line.split()
    if len(words) > 2 or (words[:1] == ["off"] and len(words) > 1):
        msg = f"%simulate takes a number of GPUs and their memory, and was given {line.strip()!r}"
        raise ArgumentError(msg, "%simulate 2, %simulate 2 4GiB or %simulate off")
    if words and words[0] == "off":
        ds.simulate(0)
        print("no simulated GPUs")
        return
    count: Any = words[0] if words else 2  # text is checked, and reported, as a number is
    simulation = ds.simulate(count, words[1] if len(words) > 1 else None)
    print(repr(simulation).strip("<>"))
