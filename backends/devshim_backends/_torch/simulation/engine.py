"""Backward passes: run on the thread that asks for them.

PyTorch's engine has a thread for every device that the device guard counts, and a guard written in Python counts one.
A gradient on ``sim:1`` would have no thread.  On the caller's own thread any number of devices do.

Ctrl-C waits for the end of a backward pass, as it does on real cards, whose threads Python never interrupts.  Here it
could come while C++ asks the guard for a stream, where no error may leave (``noexcept``), and end the process.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.autograd.variable import Variable

from devshim.transfers.interrupts import uninterrupted
from devshim_backends._torch.simulation.patches import put


class _Pending(threading.local):
    """The error of a hook on its way to whoever asked for the backward pass, in this thread."""

    error: BaseException | None = None


PENDING = _Pending()
"""PyTorch leaves a hook's error pending while it ends the guard of the device's stream, and asks a guard in Python for
its type then.  A call with an error pending fails, which in a destructor is the end of the process (PyTorch 2.10 to
2.12).  So the guard takes the error, and the engine, which then fails without one, raises it."""
NOTHING = zip()
"""A loop over it raises what is pending, and nothing else."""


class _OnThisThread(torch._C._ImperativeEngine):  # type: ignore[misc]  # PyTorch is Any to the type checker
    """PyTorch's engine without its threads."""

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        with uninterrupted(), torch.autograd.set_multithreading_enabled(False):
            try:
                return super().run_backward(*args, **kwargs)
            except SystemError:
                error, PENDING.error = PENDING.error, None
                if error is None:
                    raise
            raise error


def start_without_threads() -> None:
    """Let the engine count devices while there is only the host: it does so once, and begins a thread for each.

    Without threads of its own a process can fork and its child can run backward passes, which CUDA's cannot.
    """
    torch.ones((), device="cpu", requires_grad=True).clone().backward()


def patch() -> None:
    """Put the engine in place, of which every call of PyTorch's goes to one instance."""
    put(Variable, "_execution_engine", _OnThisThread())
