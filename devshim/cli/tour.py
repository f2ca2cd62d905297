"""`devshim tour`: run the chapter on one framework; check each step, show it, and record it as JSON."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field
from os import environ
from typing import TYPE_CHECKING, Any

import devshim as ds
from devshim.cli._console import require_folder, spinner, write
from devshim.cli._why import reason, why_no_more

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from devshim.cli.steps import Step

__all__ = ["StepResult", "Tour", "chapter", "main", "run_step"]

CARDS = 2
"""The number of GPUs simulated by default; the chapter needs this many."""

# TensorFlow writes a page of log lines to standard error, which would appear in the middle of the tour.
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


@dataclass(frozen=True)
class StepResult:
    """A step that was run, or left out.

    Attributes:
        name: The step's name in the chapter.
        title: Its subject.
        lesson: The book's text for this step.
        condition: The condition that must be true, as a clause.
        code: The devshim lines.
        native: The equivalent native lines.
        result: The result, as text.
        holds: True if the condition is true, False if not, None if the step was left out.
    """

    name: str
    title: str
    teaches: str
    must: str
    code: list[str]
    native: list[str]
    result: str
    holds: bool | None


@dataclass
class Tour:
    """The run of the chapter on one framework.

    Attributes:
        backend: The framework's import name.
        title: Its name in its official spelling.
        version: Its version.
        cards: The number of GPUs that it showed.
        simulated: True if those were simulated.
        note: Why there are not enough GPUs for every step, or None.
        declared: Why the backend declares that it cannot simulate GPUs, or None if it can.
        python: The Python version.
        steps: The steps in order.
    """

    backend: str
    title: str
    version: str | None
    cards: int
    simulated: bool
    note: str | None
    declared: str | None
    python: str = field(default_factory=platform.python_version)
    steps: list[StepResult] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """True if no step failed; a step left out for lack of a GPU, or for a declared gap, is not a failure."""
        return all(step.holds is not False for step in self.steps)

    @property
    def label(self) -> str:
        """The framework's name and version."""
        return f"{self.title} {self.version}" if self.version else self.title

    @property
    def hardware(self) -> str:
        """The number and kind of GPUs as text; simulated ones are called simulated."""
        if not self.cards:
            return "only the CPU"
        return f"{self.cards} {'simulated' if self.simulated else 'real'} GPU{'' if self.cards == 1 else 's'}"

    def to_json(self) -> str:
        """Return the tour as JSON text."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Tour:
        """Read the text that `to_json` wrote; raise `ValueError`, `TypeError` or `KeyError` for any other text."""
        fields: dict[str, Any] = json.loads(text)
        steps = [StepResult(**step) for step in fields.pop("steps")]
        return cls(**fields, steps=steps)


def main(backend: str | None, gpus: int | None, record: Path | None) -> int:
    """Run the tour and print it; return the exit code."""
    from devshim.cli import _tour_view

    require_folder(record)
    for name, value in _QUIET.items():
        environ.setdefault(name, value)
    alone = str(record) == "-"
    with ds.using(_choose(backend)) as name, spinner(f"importing {ds.backends()[name].title}") as now:
        tour = _start_tour(name, gpus)
        for i, step in enumerate(chapter(), 1):
            now(f"step {i}: {step.title}")
            tour.steps.append(run_step(step, tour))
    if record is not None and not alone:
        write(record, tour.to_json())
    if alone:
        print(tour.to_json(), end="")
    else:
        _tour_view.show(tour)
    return 0 if tour.holds else 1


def chapter() -> Sequence[Step]:
    """Return the steps of both chapters, in order."""
    from devshim.cli.chapters.devices import CHAPTER as DEVICES
    from devshim.cli.chapters.models import CHAPTER as MODELS

    return [*DEVICES, *MODELS]


def _choose(requested: str | None) -> str:
    """Return the requested backend, or devshim's default."""
    from devshim.registry import current

    name = requested or environ.get("DEVSHIM_BACKEND", "").strip() or current.chosen_name()
    if name is None:
        have = [each for each in ds.backends() if each != "numpy"]
        msg = f"several frameworks are installed, and none is selected: {', '.join(have)}"
        raise ds.BackendNotFoundError(msg, f"choose one, for example: devshim tour --backend {have[0]}")
    return name


def _start_tour(name: str, gpus: int | None) -> Tour:
    """Ask for simulated GPUs before the framework is imported, import it, and find its GPUs."""
    declared = None
    try:
        if gpus is not None or "DEVSHIM_SIMULATE_GPUS" not in environ:
            ds.simulate(CARDS if gpus is None else gpus)  # real GPUs take precedence: the reason is kept
    except ds.UnsupportedError as error:
        declared = reason(error)
    info = ds.backends()[name]
    cards = ds.devices("gpu")
    simulated = bool(cards) and ds.describe(cards[0]).simulated
    note = None if len(cards) >= CARDS else why_no_more(len(cards))
    return Tour(name, info.title, info.version, len(cards), simulated, note, declared)


def run_step(step: Step, tour: Tour) -> StepResult:
    """Run one step, record the native lines, and check its condition."""
    from devshim.cli.chapters.devices import ARGUMENTS as DEVICES
    from devshim.cli.chapters.models import ARGUMENTS as MODELS

    native: list[str] = []
    if step.cards > tour.cards:
        return _step_result(step, native, _needs(step.cards, tour), None)
    try:
        given = {name: {**DEVICES, **MODELS}[name]() for name in step.needs}
        with ds.explain(file=None) as native:
            value, question = step.code(**given)
        return _step_result(step, native, _as_text(value, tour.simulated), question())
    except ds.UnsupportedError as error:  # declared, with its reason
        return _step_result(step, native, f"left out: {reason(error)}", None)
    except Exception as error:  # any exception of a framework: the step fails, and the tour continues
        fields = error.problem if isinstance(error, ds.DevshimError) else str(error)
        return _step_result(step, native, f"{type(error).__name__}: {fields}", False)


def _needs(cards: int, tour: Tour) -> str:
    """Return why a step is left out; if GPUs could be simulated but are not, the machine is the reason."""
    return f"needs a {'second ' if cards > 1 else ''}GPU: {tour.declared or tour.note}"


def _step_result(step: Step, native: list[str], result: str, holds: bool | None) -> StepResult:
    lines = list(dict.fromkeys(native))
    return StepResult(step.name, step.title, step.lesson, step.condition, step.lines, lines, result, holds)


def _as_text(value: object, simulated: bool) -> str:
    """Return a step's result as text: a device by its name, a tensor by shape and device."""
    if isinstance(value, ds.Device):
        return f"{value} (simulated)" if simulated and value.kind == "gpu" else str(value)
    if isinstance(value, tuple):
        return ", ".join(_as_text(each, False) for each in value)
    if isinstance(value, list):
        return f"[{', '.join(_as_text(each, False) for each in value)}]"
    if hasattr(value, "shape"):
        return f"{tuple(value.shape)} on {_as_text(ds.device_of(value), simulated)}"
    return str(value)
