"""The presentation of a placement: a table as text, and a table by module with bars as HTML."""

from __future__ import annotations

from devshim.registry import simulation_request

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim._html import Markup
    from devshim.devices.device import Device

__all__ = ["html", "table"]


def table(places: Mapping[str, Device], default: Device | None, sizes: Mapping[str, int]) -> str:
    """Return the placement as the lines of a table, with totals per device if the bytes are known."""
    rows = [(key or "(the tensor itself)", _to_text(place), _bytes(sizes.get(key))) for key, place in places.items()]
    if default is not None:
        rows.append(("(everything else)", _to_text(default), ""))
    for device in sorted(set(places.values())) if sizes else ():
        rows.append(("(together)", _to_text(device), _bytes(_sum(places, sizes, device))))
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
    lines = (f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}" for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def html(places: Mapping[str, Device], default: Device | None, sizes: Mapping[str, int]) -> str:
    """Return the placement as HTML: a bar of the bytes (without them, of the tensors) on each device, and a table.

    A row of the table is a module and a device, or if there are too many modules, the modules above them.
    """
    from devshim import _html

    devices = sorted(set(places.values()))
    amounts = [sum(place is device for place in places.values()) for device in devices]
    texts = ["1 tensor" if count == 1 else f"{count} tensors" for count in amounts]
    if sizes:
        amounts = [_sum(places, sizes, device) for device in devices]
        texts = [_html.size(nbytes) for nbytes in amounts]
    head = ["module", "device", "tensors", *(["size"] if sizes else [])]
    rows: list[tuple[object, ...]] = []
    for (module, device), keys in _by_module(places, _html.MOST_ROWS).items():
        nbytes = [_html.size(sum(sizes.get(key, 0) for key in keys))] if sizes else []
        rows.append((module or "(the tensor itself)", _to_html(device), len(keys), *nbytes))
    if default is not None:
        rows.append(("(everything else)", _to_html(default), *[""] * (len(head) - 2)))
    parts = zip(map(_to_html, devices), amounts, texts, strict=True)
    bar = _html.bars(list(parts)) if devices else ""
    return _html.block(bar, _html.table(head, rows, right={2, 3}) if rows else "Placement of nothing")


def _by_module(places: Mapping[str, Device], most: int) -> dict[tuple[str, Device], list[str]]:
    """Return the paths of the leaves by module and device; with the most levels that give at most ``most`` rows."""
    deepest = max((path.count(".") for path in places), default=0)
    for depth in range(max(deepest, 1), 0, -1):
        found: dict[tuple[str, Device], list[str]] = {}
        for path, device in places.items():
            *above, _ = path.split(".")
            found.setdefault((".".join(above[:depth]) or path, device), []).append(path)
        if len(found) <= most:
            break
    return found


def _sum(places: Mapping[str, Device], sizes: Mapping[str, int], device: Device) -> int:
    return sum(sizes.get(key, 0) for key, place in places.items() if place is device)


def _to_html(device: Device) -> Markup:
    """Return a device as HTML, with a badge if it is simulated."""
    from devshim import _html

    return _html.join(device, _html.badge("simulated") if simulation_request.is_simulated(device) else "")


def _to_text(device: Device) -> str:
    """Return a device as the table shows it; a simulated GPU is labelled so."""
    return f"{device} (simulated)" if simulation_request.is_simulated(device) else str(device)


def _bytes(size: int | None) -> str:
    return "" if size is None else f"{size:,} bytes"
