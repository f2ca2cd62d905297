"""The commands' names, options and help texts; each command's code is in the module of its name.

Requirements of this module:

* Help imports no framework, not even NumPy: a command's module is imported when the command runs.
* An error of devshim is printed as its message and a hint, without a traceback; exit code 1.  Wrong usage exits with 2.
"""

from __future__ import annotations

from argparse import BooleanOptionalAction
from pathlib import Path

from devshim import __version__
from devshim.cli import _cluster_commands, _tutorial_commands
from devshim.cli._commands import Group, UsageError, argument, flag, number
from devshim.cli._launch_command import add as add_launch
from devshim.cli._smi_command import add as add_smi
from devshim.cli._tabs_command import add as add_tabs

__all__ = ["app"]

app = Group(
    "One Device/Placement API with the same behaviour on PyTorch, TensorFlow, MXNet, PaddlePaddle, JAX and NumPy.",
    version=f"devshim {__version__}",
)

BACKEND = argument(
    *("-b", "--backend"), metavar="NAME", help="torch, tensorflow, mxnet, paddle, jax, cupy, numpy, or a nickname: tf."
)
FILES = argument("files", nargs="*", type=Path, metavar="FILE")


@app.command(
    BACKEND,
    argument(
        "--gpus",
        type=number(int, 0, 64),
        metavar="N",
        help="How many GPUs to simulate if there are no real ones; 2 unless DEVSHIM_SIMULATE_GPUS is set.",
    ),
    argument(
        "--json", type=Path, metavar="FILE", help="Also write the results to a JSON file; '-' prints only the JSON."
    ),
    flag("--compare", help="Run nothing; show the FILEs side by side, like 'devshim compare'."),
    FILES,
)
def tour(
    backend: str | None = None,
    gpus: int | None = None,
    json: Path | None = None,
    compare: bool = False,
    files: list[Path] | None = None,
) -> int:
    """Run the GPU chapter of Dive into Deep Learning on a framework, and check each step.

    Each step shows the devshim line, the framework's own line for it, and if its condition is true.
    Without another framework it runs on NumPy with two simulated GPUs. Exit code 1 if a step fails.
    """
    _check_usage(compare, files or [], backend is not None or gpus is not None or json is not None)
    if compare:
        from devshim.cli import compare as comparing

        return comparing.main(files or [])
    from devshim.cli import tour as touring

    return touring.main(backend, gpus, json)


def _check_usage(compare: bool, files: list[Path], others: bool) -> None:
    """Raise a usage error (exit code 2) for options that exclude each other."""
    if compare and not files:
        msg = "give the JSON files to compare: devshim tour --compare out/*.json"
        raise UsageError(msg)
    if compare and others:
        msg = "--compare cannot be combined with other options"
        raise UsageError(msg)
    if files and not compare:
        msg = f"{files[0]} is not expected here; add --compare to show files side by side"
        raise UsageError(msg)


@app.command(
    argument(
        "--gpus",
        type=number(int, 1, 64),
        metavar="N",
        help="How many GPUs to simulate; 2 unless DEVSHIM_SIMULATE_GPUS is set.",
    ),
    argument("--memory", metavar="SIZE", help="Memory of each GPU, such as 4GiB; default: no limit."),
    argument("--like", metavar="PLATFORM", help="The platform to imitate: cuda (default), mps or xpu."),
    argument(
        "--native-names",
        action=BooleanOptionalAction,
        help='Whether native names, such as "cuda:1", mean simulated GPUs; default: where the framework can.',
    ),
    argument(
        "--async-copies",
        metavar="WHEN",
        help="When copies that do not block arrive: immediate (default) or late, which finds missing waits.",
    ),
    flag("--check", help="Run nothing: list the program's calls that cannot be simulated; exit code 1."),
    BACKEND,
    program=True,
)
def run(
    program: list[str],
    gpus: int | None = None,
    memory: str | None = None,
    like: str | None = None,
    native_names: bool | None = None,
    async_copies: str | None = None,
    check: bool = False,
    backend: str | None = None,
) -> int:
    """Run a Python program with simulated GPUs, as 'python SCRIPT', 'python -m MODULE' or 'python -c CODE' would.

    Every framework that the program imports sees the simulated GPUs, also in processes that the program starts.
    Real GPUs are hidden. Options after the program are passed to it; the exit code is the program's.
    """
    if not program:
        msg = "give a program: devshim run --gpus 2 script.py"
        raise UsageError(msg)
    if check:
        from devshim.cli import native_calls

        return native_calls.main(program)
    from devshim.cli import run as running

    running.main(gpus, memory, backend, program, like, native_names, async_copies)
    return 0


@app.command(FILES)
def compare(files: list[Path] | None = None) -> int:
    """Show tours of several frameworks side by side.

    'devshim tour --json FILE' writes a FILE. Without files it shows the lines of every framework as they were
    recorded for this version of devshim.
    Exit code 1 if a step of a file failed.
    """
    from devshim.cli import compare as comparing

    return comparing.main(files) if files else comparing.show_records()


@app.command(BACKEND, flag("--json", help="Print a list as JSON: sizes in bytes, null where unknown."))
def devices(backend: str | None = None, json: bool = False) -> int:
    """List the devices of every installed framework, or of one, with their memory.

    Each framework runs in a separate process, because several in one process may crash. Simulated GPUs
    (DEVSHIM_SIMULATE_GPUS=2) are listed and marked. Exit code 1 if a framework is broken.
    """
    from devshim.cli import devices as listing

    return listing.main(backend, json)


add_smi(app)
add_tabs(app)
add_launch(app)


@app.command(
    BACKEND,
    argument("--only", metavar="PATTERN", help="Check the claims whose names match, such as 'torch.*'."),
    flag("--quick", help="Use an eighth of the memory and fewer rounds for the rates."),
    argument("--json", type=Path, metavar="FILE", help="Also write every result as JSON, for a bug report."),
    flag("--simulate", help="Try the checks on two simulated GPUs; this certifies nothing."),
)
def certify(
    backend: str | None = None,
    only: str = "*",
    quick: bool = False,
    json: Path | None = None,
    simulate: bool = False,
) -> int:
    """Check the documentation's claims on this machine's GPUs, and measure rates; about ten minutes.

    Each installed framework that sees GPUs runs in a separate process. Every claim ends as PASS, FAIL or SKIP with
    the reason. Exit code 0 if no claim fails, 1 if one does, 2 if there is no GPU.
    """
    from devshim.cli import certify as certifying

    return certifying.main(backend, only or "*", quick, simulate, json)


@app.command()
def doctor() -> int:
    """Find out why there is no GPU, or what is wrong with one.

    Checks the driver, the environment variables that hide GPUs, and each installed framework: its version, whether
    its build supports GPUs, how many it sees and why no more. Then copies one number to each GPU and back. Exit code 1
    if something is broken.
    """
    from devshim.cli import doctor as diagnosing

    return diagnosing.main()


@app.command(
    argument("name", metavar="NAME"),
    argument(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help="The folder to create; devshim-NAME in this one by default.",
    ),
    name="new-backend",
)
def new_backend(name: str, folder: Path | None = None) -> int:
    """Create a distribution with a backend for another array library, whose import name is NAME.

    It contains a class with the methods to write, a test file that runs the conformance kit on it, and a pyproject.toml
    that registers it.
    """
    from devshim.cli import new_backend as creating

    target = folder if folder is not None else Path(f"devshim-{name.replace('_', '-')}")
    problem = creating.problem_with(name, target)
    if problem is not None:
        raise UsageError(problem)
    return creating.main(name, target)


app.commands["cluster"] = _cluster_commands.cluster
app.commands["tutorial"] = _tutorial_commands.tutorial


@app.command(
    argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL"),
)
def completion(shell: str) -> int:
    """Print a script that completes commands and options with the Tab key; SHELL is bash, zsh or fish.

    For bash, add this line to ~/.bashrc: eval "$(devshim completion bash)". For zsh, the same with zsh in ~/.zshrc,
    below compinit. For fish: devshim completion fish > ~/.config/fish/completions/devshim.fish
    """
    from devshim.cli import completion as completing

    print(completing.script(shell))
    return 0
