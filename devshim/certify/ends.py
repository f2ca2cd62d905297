"""How a process ended, in words."""

from __future__ import annotations

import signal

__all__ = ["ending"]


def ending(code: int, errors: str) -> str:
    """Return how a process ended: its signal or exit code, and the last line of its standard error."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    last = f"; it wrote last: {lines[-1][:300]}" if lines else ""
    return f"was ended by {_signal(-code)}{last}" if code < 0 else f"ended with exit code {code}{last}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
