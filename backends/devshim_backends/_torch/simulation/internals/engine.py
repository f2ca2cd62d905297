"""A patch that makes PyTorch's engine run backward passes on the calling thread.

PyTorch's engine has a thread for every device that the device guard counts, and a guard written in Python counts one.
A gradient on ``sim:1`` would have no thread. The caller's own thread can serve any number of devices; what is current
on it follows the nodes that run (`backward_nodes`).

Ctrl-C waits for the end of a backward pass, as it does on real GPUs, whose threads Python never interrupts. Otherwise
it could arrive while C++ asks the guard for a stream. No error may leave that call (``noexcept``), so the process would
end.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.autograd.variable import Variable

from devshim.transfers.interrupts import defer_sigint
from devshim_backends._torch.simulation.internals import backward_nodes
from devshim_backends._torch.simulation.internals.patches import install

_run_backward = torch._C._ImperativeEngine.run_backward
# The functions under `torch.autograd.set_multithreading_enabled`, which takes three times as long.
_is_multithreaded, _set_multithreaded = torch._C._is_multithreading_enabled, torch._C._set_multithreading_enabled


class _Pending(threading.local):
    """This thread's storage for a hook's error that the backward pass will raise."""

    error: BaseException | None = None


PENDING = _Pending()
"""The thread's pending error.

PyTorch leaves a hook's error pending while it ends the guard of the device's stream, and then asks a guard in Python
for its type. A call with a pending error fails, and in a destructor, that ends the process (PyTorch 2.10 to 2.12).
Therefore the guard takes the error, and the engine, which then fails without an error, raises it.
"""
NOTHING = zip()
"""An empty iterator: to loop over it raises the pending error, if there is one."""


class _OnThisThread(torch._C._ImperativeEngine):  # type: ignore[misc]  # PyTorch is Any to the type checker
    """PyTorch's engine without its threads."""

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        with defer_sigint():
            before = _is_multithreaded()
            _set_multithreaded(False)
            end = backward_nodes.follow(args[0])
            try:
                return _run_backward(self, *args, **kwargs)
            except SystemError:
                error, PENDING.error = PENDING.error, None
                if error is None:
                    raise
            finally:
                end()
                _set_multithreaded(before)
            raise error


def start_without_threads() -> None:
    """Make the engine count devices while only the host exists: it counts once, and starts a thread for each device.

    Without these threads, a process can fork and its child can run backward passes, which is impossible with CUDA.
    """
    torch.ones((), device="cpu", requires_grad=True).clone().backward()


def patch() -> None:
    """Install the engine; every backward pass in PyTorch uses this one instance."""
    install(Variable, "_execution_engine", _OnThisThread())
