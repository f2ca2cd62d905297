"""``%%frameworks torch jax``: run a cell on several frameworks at the same time, and show the results side by side."""

from __future__ import annotations

import argparse
import atexit
import os
import shlex
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from devshim.errors import ArgumentError, DevshimError
from devshim.jupyter import kernels
from devshim.jupyter.view import sides_of
from devshim.registry import discovery
from devshim.transfers import progress
from devshim.tutorial import environments
from devshim.tutorial.front_matter import library

if TYPE_CHECKING:
    from devshim.jupyter.view import Sides

__all__ = ["cell", "line", "stop_all"]

_USAGE = "%%frameworks torch jax [--gpus 2] [--real] [--env torch=FOLDER]"


class _Parser(argparse.ArgumentParser):
    """A parser that raises errors of devshim instead of ending the program."""

    def error(self, message: str) -> NoReturn:
        raise _usage_error(message)


class _Session:
    """The frameworks that were named last, how they are started, and their kernels."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.gpus = 2
        self.real = False
        self.options: dict[str, str] = {}
        self.kernels: dict[str, kernels.Kernel] = {}
        self._known: dict[str, tuple[Any, environments.Environment]] = {}
        self._lock = threading.RLock()
        self._process = os.getpid()

    def change(self, text: str) -> argparse.Namespace:
        """Read the text after the name of the magic, and remember what it says."""
        asked = _parse(text)
        names = list(dict.fromkeys(map(discovery.canonical_name, asked.names)))
        self.options.update(environments.read_options(asked.env))
        self.names = names or self.names
        self.gpus = self.gpus if asked.gpus is None else asked.gpus
        self.real = asked.real or (self.real and asked.gpus is None)
        return asked

    def chosen(self) -> list[str]:
        """Return the frameworks for a cell: those named last, or those that have an environment.

        Raises:
            ArgumentError: None is named, and pyproject.toml has no environments.
        """
        names = self.names or list(environments.read_configured(Path.cwd()))
        if not names:
            msg = "no framework is named, and pyproject.toml has no environments"
            raise _usage_error(msg)
        return names

    def find(self, names: list[str]) -> tuple[dict[str, kernels.Kernel], dict[str, str]]:
        """Return a kernel for each framework, or why it has none; kernels with other settings are replaced."""
        with self._lock:
            found, problems = {}, {}
            for name, place in self._places(names).items():
                if isinstance(place, DevshimError):
                    problems[name] = str(place)
                    continue
                settings = kernels.Settings(place, self.gpus, self.real)
                kernel = self.kernels.get(name)
                if kernel is not None and kernel.settings != settings:
                    kernel.stop()
                    kernel = None
                if kernel is None or kernel.stopped:
                    kernel = self.kernels[name] = kernels.Kernel(settings, Path.cwd())
                found[name] = kernel
            return found, problems

    def _places(self, names: list[str]) -> dict[str, environments.Environment | DevshimError]:
        """Return the environment of each framework; the versions of each Python are queried once."""
        table = environments.read_configured(Path.cwd())
        keys = {name: environments.choose(name, self.options, table) for name in names}
        new = [name for name in names if self._known.get(name, (None,))[0] != keys[name] or keys[name] is None]
        found = environments.resolve(new, self.options, table)
        self._known.update(
            {name: (keys[name], each) for name, each in found.items() if not isinstance(each, DevshimError)}
        )
        return {name: found[name] if name in found else self._known[name][1] for name in names}

    def stop(self) -> None:
        """End all kernels; a process that was forked from the notebook's does not end them."""
        if self._process != os.getpid():
            return
        with self._lock:
            while self.kernels:
                self.kernels.popitem()[1].stop()
            self._known.clear()


_SESSION = _Session()


def _parse(text: str) -> argparse.Namespace:
    parser = _Parser(prog="%frameworks", add_help=False, allow_abbrev=False)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--stop", action="store_true")
    try:
        words = shlex.split(text.replace(",", " "))
    except ValueError as error:
        raise _usage_error(error) from error
    asked = parser.parse_args(words)
    if asked.gpus is not None and not 0 <= asked.gpus <= 64:
        msg = f"--gpus is {asked.gpus}, and it must be 0 to 64"
        raise _usage_error(msg)
    return asked


def _usage_error(problem: object) -> ArgumentError:
    return ArgumentError(f"%frameworks: {problem}", _USAGE)


def line(text: str) -> None:
    """Choose the frameworks of the next cells, and start their kernels.

    %frameworks torch jax                          these frameworks, each with two simulated GPUs
    %frameworks torch --gpus 4                     with four
    %frameworks torch --env torch=.venvs/torch     in this environment
    %frameworks                                    say what runs
    %frameworks --stop                             end the kernels
    """
    asked = _SESSION.change(text)
    if asked.stop:
        _SESSION.stop()
        return
    if text.strip():
        result, stopped = _run("None", *_SESSION.find(_SESSION.chosen()))
        for name, problem in result.problems.items():
            print(f"{_titles([name])}: {problem}")
        _raise_if(stopped)
    running = [name for name, each in _SESSION.kernels.items() if each.runs]
    print(f"kernels run for {_titles(running)}" if running else "no kernel runs")


def cell(text: str, source: str) -> None:
    """Run a cell on several frameworks, and show the results side by side.

    %%frameworks torch jax tensorflow     on these frameworks
    %%frameworks                          on those of the last time

    Each framework has its own kernel, which keeps its variables between cells. ``ds`` is devshim in it. The
    options are those of ``%frameworks``.
    """
    if _SESSION.change(text).stop:
        msg = "--stop ends the kernels, and runs no cell"
        raise ArgumentError(msg, "%frameworks --stop")
    found, problems = _SESSION.find(_SESSION.chosen())
    display = library("IPython.display").display
    new = [name for name, each in found.items() if not each.runs]
    waiting = None
    if new and progress.in_notebook():  # the results take the place of this text
        waiting = display({"text/plain": f"starting {_titles(new)} ..."}, raw=True, display_id=True)
    result, stopped = _run(source, found, problems)
    display(result) if waiting is None else waiting.update(result)
    _raise_if(stopped)


def _run(source: str, found: dict[str, kernels.Kernel], problems: dict[str, str]) -> tuple[Sides, bool]:
    """Return what code shows on some kernels, and True if Ctrl-C interrupted it."""
    shown, stopped = kernels.run_all(found, source)
    return sides_of(source, shown, problems), stopped


def _raise_if(stopped: bool) -> None:
    """Raise the error after which a notebook runs no further cells, if Ctrl-C interrupted this one."""
    if stopped:
        msg = "the cell was interrupted on the frameworks that were still running; their kernels keep their variables"
        raise ArgumentError(msg, "run the cell again, or stop the kernels with %frameworks --stop")


def _titles(names: list[str]) -> str:
    return ", ".join(discovery.title_of(name) for name in names)


def stop_all() -> None:
    """End all kernels."""
    _SESSION.stop()


atexit.register(stop_all)
