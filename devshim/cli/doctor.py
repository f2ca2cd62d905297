"""`devshim doctor`: explain why there is no GPU, from the driver up to each framework's build, and what to do next."""

from __future__ import annotations

import os
import platform
import sys
from typing import TYPE_CHECKING

import devshim as ds
from devshim.cli import _machine
from devshim.cli._ask import ask, find_installed
from devshim.cli._console import Column, Grid, say, show, spinner
from devshim.cli._touch import failures
from devshim.devices import nvml
from devshim.registry import environment, environment_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from devshim.cli._ask import Answer
    from devshim.cli._machine import Machine

__all__ = ["cause", "main", "verdict"]

_PREALLOCATING = ("tensorflow", "jax")
"""The frameworks that reserve most of the memory of every visible GPU at their first operation."""


def main() -> int:
    """Print the diagnosis; return the exit code, 1 if something is broken."""
    machine = _machine.look()
    answers = ask(find_installed(), simulate=False)
    show(_describe_machine(machine))
    say()
    show(_describe_frameworks(answers))
    for note in _notes(machine, answers):
        say(f"Note: {note}", "yellow")
    say()
    with spinner("copying one number to each GPU and back"):
        failed = failures(answers)
    broken = bool(failed) or any(answer.broken is not None for answer in answers)
    for sentence in [*verdict(machine, answers), *copies(answers, failed)]:
        say(sentence, "bold red" if broken else "bold")
    return 1 if broken else 0


def copies(answers: Sequence[Answer], failed: Sequence[str]) -> Iterator[str]:
    """Yield the result of copying one number to each GPU."""
    yield from failed
    if any(answer.gpus for answer in answers) and not failed:
        yield "Each framework copied a number to each GPU and back. To check more: `devshim certify`."


def _describe_machine(machine: Machine) -> Grid:
    grid = Grid("The machine", [Column("What", "bold", no_wrap=True), Column("Found")])
    grid.rows.append(("Python", f"{platform.python_version()} ({sys.executable})"))
    grid.rows.append(("devshim", ds.__version__))
    grid.rows.append(("NVIDIA driver", machine.driver or f"none: {machine.why}"))
    for card in machine.cards:
        grid.rows.append((f"card {card.index}", f"{card.name}, {card.uuid}"))
    for name, value, effect in machine.variables():
        grid.rows.append((name, f"{value!r}: {effect}"))
    for variable, meaning in environment.KNOWN.items():
        setting = os.environ.get(variable)
        if setting:
            grid.rows.append((variable, f"{setting!r}: {_meaning(variable, setting, meaning)}"))
    return grid


def _meaning(name: str, value: str, meaning: str) -> str:
    """Return the effect of an environment variable that devshim reads, or what is wrong with it."""
    problem = environment_values.problem_of(name, value)
    if problem is not None:
        return f"WRONG, {problem}"
    if name == "DEVSHIM_SIMULATE_GPUS":
        return "requests simulated GPUs; doctor looks for real ones"
    return meaning


def _describe_frameworks(answers: Sequence[Answer]) -> Grid:
    columns = [
        Column("Framework", "bold"),
        Column("Version", no_wrap=True),
        Column("GPUs", no_wrap=True),
        Column("Why not more"),
    ]
    grid = Grid("The frameworks", columns, styles={"broken": "bold red"})
    for answer in answers:
        cells = ("broken", answer.broken) if answer.broken is not None else (_count(answer), answer.why)
        grid.rows.append((answer.info.title, answer.info.version or "unknown", *cells))
    return grid


def _count(answer: Answer) -> str:
    """Return the number of a framework's GPUs, with their platforms."""
    return f"{answer.gpus} ({', '.join(answer.platforms)})" if answer.platforms else str(answer.gpus)


def _notes(machine: Machine, answers: Sequence[Answer]) -> Iterator[str]:
    """Yield notes about things that are worth knowing but break nothing."""
    yield from environment.unread()
    yield from dict.fromkeys(clash for answer in answers for clash in answer.clashes)
    yield from _preallocation(answers)
    if not nvml.has_driver_order(machine.cards):
        yield (
            "the cards are of different models. CUDA and the frameworks number the fastest card 0; the numbers in the "
            "table above are the driver's, by bus. Set CUDA_DEVICE_ORDER=PCI_BUS_ID in the environment for one order"
        )
    by_name = {answer.info.name: answer.info for answer in answers}
    numpy, mxnet = by_name.get("numpy"), by_name.get("mxnet")
    if mxnet is not None and numpy is not None and _numbers(numpy.version) >= (1, 24):
        yield (
            f"MXNet {mxnet.version} was made for NumPy before 1.24, but NumPy {numpy.version} is installed: "
            "after ds.use('mxnet'), devshim supplies the missing names while MXNet is imported"
        )


def _preallocation(answers: Sequence[Answer]) -> Iterator[str]:
    """Warn of frameworks that reserve the memory of GPUs which they share with others in one process."""
    seeing = [answer.info for answer in answers if answer.gpus]
    takers = [info for info in seeing if info.name in _PREALLOCATING]
    if takers and len(seeing) > 1:
        names = " and ".join(info.title for info in takers)
        yield (
            f"{names} {'take' if len(takers) > 1 else 'takes'} most of the memory of every visible GPU at the first "
            f"operation, and {len(seeing)} frameworks see the GPUs: in a program that uses several of them, or "
            'shares a GPU with another program, call ds.memory_policy("grow") before the first tensor'
        )


def _numbers(version: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in (version or "").split(".")[:2] if part.isdecimal())


def verdict(machine: Machine, answers: Sequence[Answer]) -> Iterator[str]:
    """Yield the conclusion in plain sentences; the last one says what to do next."""
    for answer in answers:
        if answer.broken is not None:
            yield f"{answer.info.title} is broken: {answer.broken}. Reinstall it, or remove it."
    seeing = [answer for answer in answers if answer.gpus]
    if seeing:
        frameworks = ", ".join(f"{answer.info.title} ({answer.gpus})" for answer in seeing)
        yield f"These frameworks see GPUs: {frameworks}."
        return
    yield cause(machine, answers)
    yield "To work without a GPU: `devshim run --gpus 2 script.py`, or ds.simulate(gpus=2); `devshim tour` shows how."


def cause(machine: Machine, answers: Sequence[Answer]) -> str:
    """Return why no framework sees a GPU; the cause to fix first comes first."""
    count = len(machine.cards)
    if machine.driver is None:
        return (
            f"No framework sees a GPU, because of the machine: {machine.why}. "
            "If it has an NVIDIA card, install its driver, and check that `nvidia-smi` lists the card."
        )
    if not count:
        return f"No framework sees a GPU, because NVIDIA driver {machine.driver} shows no card to this process."
    have = f"The driver has {'1 card' if count == 1 else f'{count} cards'}, which no framework sees"
    hiding = [name for name, _, effect in machine.variables() if effect.startswith("hides all")]
    if hiding:
        return f"{have}, because {hiding[0]} hides all of them: unset it and start again."
    if {answer.info.name for answer in answers} <= {"numpy"}:
        return f"{have}, because only NumPy is installed: install a framework with GPU support."
    return f"{have}: install a build with GPU support; the table shows the reasons."
