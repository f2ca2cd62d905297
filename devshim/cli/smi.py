"""`devshim smi`, and ``nvidia-smi`` in programs of `devshim run`: the simulated GPUs, and which processes use them.

The tables, fields and exit codes have the form of NVIDIA's tool, so that programs which parse its text work.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from devshim.cli import _smi_fields, _smi_listing, _smi_table
from devshim.devices import nvml
from devshim.registry import simulation_request
from devshim.simulation import runs, usage
from devshim.simulation.usage import Gpu, Process

__all__ = ["Request", "main"]

NO_GPUS, NO_DRIVER, WRONG = 6, 9, 2
"""NVIDIA's exit codes."""


@dataclass(frozen=True)
class Request:
    """The options of one call.

    Attributes:
        gpus: Fields of each GPU, separated by commas, or None.
        processes: Fields of each process, or None.
        form: ``csv``, with ``noheader`` and ``nounits``.
        names: True to list only names and UUIDs.
        ids: Indices or UUIDs of the GPUs to show, separated by commas, or None for all.
        every: Seconds between repetitions, or None for one answer.
        listing: True to list the fields of each GPU, one per line.
        display: Sections of that list, separated by commas, or None for all.
    """

    gpus: str | None = None
    processes: str | None = None
    form: str | None = None
    names: bool = False
    ids: str | None = None
    every: float | None = None
    listing: bool = False
    display: str | None = None


@dataclass(frozen=True)
class Machine:
    """The simulated GPUs that the processes of one `devshim run` share.

    Attributes:
        title: The line above its table.
        gpus: Its GPUs.
        late: The processes that did not answer.
    """

    title: str
    gpus: list[Gpu]
    late: tuple[int, ...] = ()


def main(request: Request) -> int:
    """Print the answer, repeatedly if ``request.every`` is set; return the exit code."""
    if request.every is None:
        return _show_once(request)
    try:
        while not (code := _show_once(request)):
            sys.stdout.flush()
            time.sleep(request.every)
    except KeyboardInterrupt:  # the way to end it, even while it prints
        return 0
    return code


def _show_once(request: Request) -> int:
    found = list(machines())
    if not found:
        print(_explain_none(), file=sys.stderr)
        return NO_DRIVER
    for pid in (pid for machine in found for pid in machine.late):
        print(f"process {pid} did not answer in time, and is not listed", file=sys.stderr)
    if not any(machine.gpus for machine in found):
        print("No devices were found")
        return NO_GPUS
    shown = [Machine(each.title, _select(each.gpus, request.ids), each.late) for each in found]
    if not any(machine.gpus for machine in shown):
        print(f"No devices were found: there is no GPU {request.ids}")
        return NO_GPUS
    wrong = _wrong_combination(request)
    if wrong is not None:
        print(wrong, file=sys.stderr)
        return WRONG
    fields = request.gpus or request.processes
    if fields is not None:
        return _query(shown, fields.split(","), request)
    counts = [len(machine.gpus) for machine in found]
    for machine, count in zip(shown, counts, strict=True):
        if len(shown) > 1 and not request.names:
            print(machine.title)
        print(_text(machine.gpus, count, request))
    return 0


def _wrong_combination(request: Request) -> str | None:
    """Return what is wrong with options that do not go together, or None."""
    if request.form is not None and request.gpus is None and request.processes is None:
        return '"--format=" switch cannot be used without "--query-gpu=" or "--query-compute-apps="'
    if request.display is None:
        return None
    if not request.listing:
        return '"--display=" switch cannot be used without "-q"'
    unknown = _smi_listing.unknown_section(request.display)
    return unknown and f'"{unknown}" is not one of the sections {", ".join(_smi_listing.SECTIONS)}'


def _text(gpus: Sequence[Gpu], count: int, request: Request) -> str:
    """Return the names, the listing or the table of some GPUs of a machine with ``count``."""
    if request.names:
        return "\n".join(f"GPU {gpu.index}: {usage.NAME} (UUID: {usage.uuid(gpu.index)})" for gpu in gpus)
    if request.listing:
        return _smi_listing.listing(gpus, count, request.display)
    return _smi_table.table(gpus)


def _query(shown: Sequence[Machine], fields: Sequence[str], request: Request) -> int:
    form = {each.strip() for each in (request.form or "").split(",")}
    if "csv" not in form or form - {"csv", "noheader", "nounits"}:
        print('give the form: "--format=csv", with ",noheader" and ",nounits" if you like', file=sys.stderr)
        return WRONG
    names = [each.strip() for each in fields]
    known = _smi_fields.is_gpu_field if request.gpus is not None else _smi_fields.is_process_field
    wrong = [each for each in names if not known(each)]
    if wrong:
        print(f'Field "{wrong[0]}" is not a valid field to query.')
        return WRONG
    units, title = "nounits" not in form, _smi_fields.gpu_header if request.gpus else _smi_fields.process_header
    if "noheader" not in form:
        print(", ".join(title(each, units) for each in names))
    for machine in shown:
        for gpu in machine.gpus:
            if request.gpus is not None:
                print(", ".join(_smi_fields.of_gpu(gpu, len(machine.gpus), names, units)))
                continue
            for process, nbytes in gpu.processes:
                print(", ".join(_smi_fields.of_process(gpu, process, nbytes, names, units)))
    return 0


def machines() -> Iterator[Machine]:
    """Yield the machine of this `devshim run`; outside of one, the machines of all runs, or that of the environment."""
    run = runs.run_of_this_process()
    answers: dict[str, list[Process | int]] = {}
    runs.require_folder()
    for number, answer in runs.processes(run):
        answers.setdefault(number, []).append(answer)
    if run is not None or (not answers and simulation_request.simulated_gpus()):
        answers.setdefault(run or "", []).append(usage.of_environment())
    for number, each in answers.items():
        known = [process for process in each if isinstance(process, Process)]
        late = tuple(pid for pid in each if isinstance(pid, int))
        program = next((process.program for process in known), "")
        yield Machine(f"devshim run {number}: {program}", usage.gpus_of(known), late)


def _select(gpus: list[Gpu], ids: str | None) -> list[Gpu]:
    if ids is None:
        return gpus
    wanted = {each.strip() for each in ids.split(",")}
    return [gpu for gpu in gpus if {str(gpu.index), usage.uuid(gpu.index)} & wanted]


def _explain_none() -> str:
    real = len(nvml.cards())
    text = "devshim smi shows simulated GPUs, and no program that uses them runs now"
    hint = "start one with `devshim run --gpus 2 script.py`, or set DEVSHIM_SIMULATE_GPUS=2"
    cards = f"; nvidia-smi lists this machine's {real} real GPU{'s' * (real != 1)}" if real else ""
    return f"{text}{cards}.\n\nHint: {hint}"
