"""``torch.jit.script``, which knows PyTorch's own functions by their addresses."""

from __future__ import annotations

from torch.jit._builtins import _get_builtin_table

from devshim.simulation.patching import Patches


def prepare() -> None:
    """Build TorchScript's table, which stays for the life of the process, while PyTorch's functions are its own."""
    _get_builtin_table()


def install(patches: Patches) -> None:
    """Let TorchScript compile calls of the functions that were replaced: it finds their operators, as before.

    Without this, TorchScript looks for the Python code of a function in C++. Modules of PyTorch that are first imported
    while native names are on contain such calls.
    """
    operators = _get_builtin_table()
    for old, new in patches.replaced():
        name = operators.get(id(old))
        if name is not None and id(new) not in operators:
            patches.replace_item(operators, id(new), name)
