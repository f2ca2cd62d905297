"""The commands' names, options and help texts; each command's code is in the module of its name.

Requirements of this module:

* Help imports no framework, not even NumPy: a command's module is imported when the command runs.
* An error of devshim is printed as its message and a hint, without a traceback; exit code 1.  Wrong usage exits with 2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from devshim.cli._cluster_commands import cluster
from devshim.cli._launch_command import LaunchCommand, launch
from devshim.cli._program import ProgramCommand
from devshim.cli._smi_command import smi
from devshim.cli._tabs_command import tabs
from devshim.cli._tutorial_commands import tutorial
from devshim.errors import DevshimError

__all__ = ["app"]


class _Commands(TyperGroup):
    """A group of commands that prints devshim's own errors as plain text."""

    def invoke(self, ctx: Any) -> Any:  # a click.Context; newer versions of typer bundle click
        try:
            return super().invoke(ctx)
        except DevshimError as error:
            from devshim.cli._console import complain

            complain(error)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich shows types such as <bool> beside every switch, and draws lines in pipes
)

BackendOption = Annotated[
    str | None,
    typer.Option(
        "--backend",
        "-b",
        metavar="NAME",
        help="torch, tensorflow, mxnet, paddle, jax, cupy, numpy, or a nickname such as tf.",
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        import devshim as ds

        typer.echo(f"devshim {ds.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """One Device/Placement API with the same behaviour on PyTorch, TensorFlow, MXNet, PaddlePaddle, JAX and NumPy."""


@app.command()
def tour(
    backend: BackendOption = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus",
            min=0,
            max=64,
            metavar="N",
            help="How many GPUs to simulate if there are no real ones; 2 unless DEVSHIM_SIMULATE_GPUS is set.",
        ),
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Also write the results to a JSON file; '-' prints only the JSON."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Run nothing; show the FILEs side by side, like 'devshim compare'.")
    ] = False,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", hidden=True),  # in the help below: typer would add <list[Path]>
    ] = None,
) -> None:
    """Run the GPU chapter of Dive into Deep Learning on a framework, and check each step.

    Each step shows the devshim line, the framework's own line for it, and if its condition is true.
    Without another framework it runs on NumPy with two simulated GPUs. Exit code 1 if a step fails.
    """
    _check_usage(compare, files or [], backend is not None or gpus is not None or json is not None)
    if compare:
        from devshim.cli import compare as comparing

        raise typer.Exit(comparing.main(files or []))
    from devshim.cli import tour as touring

    raise typer.Exit(touring.main(backend, gpus, json))


def _check_usage(compare: bool, files: list[Path], others: bool) -> None:
    """Raise a usage error (exit code 2) for options that exclude each other."""
    if compare and not files:
        msg = "give the JSON files to compare: devshim tour --compare out/*.json"
        raise typer.BadParameter(msg)
    if compare and others:
        msg = "--compare cannot be combined with other options"
        raise typer.BadParameter(msg)
    if files and not compare:
        msg = f"{files[0]} is not expected here; add --compare to show files side by side"
        raise typer.BadParameter(msg)


@app.command(cls=ProgramCommand)
def run(
    context: typer.Context,
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus",
            min=1,
            max=64,
            metavar="N",
            help="How many GPUs to simulate; 2 unless DEVSHIM_SIMULATE_GPUS is set.",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="SIZE", help="Memory of each GPU, such as 4GiB; default: no limit."),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option("--like", metavar="PLATFORM", help="The platform to imitate: cuda (default), mps or xpu."),
    ] = None,
    native_names: Annotated[
        bool | None,
        typer.Option(
            "--native-names/--no-native-names",
            help='Whether native names, such as "cuda:1", mean simulated GPUs; default: where the framework can.',
            show_default=False,
        ),
    ] = None,
    async_copies: Annotated[
        str | None,
        typer.Option(
            "--async-copies",
            metavar="WHEN",
            help="When copies that do not block arrive: immediate (default) or late, which finds missing waits.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Run nothing: list the program's calls that cannot be simulated; exit code 1."),
    ] = False,
    backend: BackendOption = None,
) -> None:
    """Run a Python program with simulated GPUs, as 'python SCRIPT', 'python -m MODULE' or 'python -c CODE' would.

    Every framework that the program imports sees the simulated GPUs, also in processes that the program starts.
    Real GPUs are hidden. Options after the program are passed to it; the exit code is the program's.
    """
    if not context.args:
        msg = "give a program: devshim run --gpus 2 script.py"
        raise typer.BadParameter(msg)
    if check:
        from devshim.cli import native_calls

        raise typer.Exit(native_calls.main(context.args))
    from devshim.cli import run as running

    running.main(gpus, memory, backend, context.args, like, native_names, async_copies)


@app.command()
def compare(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", hidden=True),
    ] = None,
) -> None:
    """Show tours of several frameworks side by side.

    'devshim tour --json FILE' writes a FILE. Without files it shows the lines of every framework as they were
    recorded for this version of devshim.
    Exit code 1 if a step of a file failed.
    """
    from devshim.cli import compare as comparing

    raise typer.Exit(comparing.main(files) if files else comparing.show_records())


@app.command()
def devices(
    backend: BackendOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print a list as JSON: sizes in bytes, null where unknown.")
    ] = False,
) -> None:
    """List the devices of every installed framework, or of one, with their memory.

    Each framework runs in a separate process, because several in one process may crash. Simulated GPUs
    (DEVSHIM_SIMULATE_GPUS=2) are listed and marked. Exit code 1 if a framework is broken.
    """
    from devshim.cli import devices as listing

    raise typer.Exit(listing.main(backend, json))


app.command()(smi)
app.command()(tabs)
app.command(cls=LaunchCommand)(launch)
app.add_typer(cluster, name="cluster")
app.add_typer(tutorial, name="tutorial")


@app.command()
def certify(
    backend: BackendOption = None,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="PATTERN", help="Check the claims whose names match, such as 'torch.*'."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use an eighth of the memory and fewer rounds for the rates.")
    ] = False,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write every result as JSON, for a bug report.")
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Try the checks on two simulated GPUs; this certifies nothing.")
    ] = False,
) -> None:
    """Check the documentation's claims on this machine's GPUs, and measure rates; about ten minutes.

    Each installed framework that sees GPUs runs in a separate process. Every claim ends as PASS, FAIL or SKIP with
    the reason. Exit code 0 if no claim fails, 1 if one does, 2 if there is no GPU.
    """
    from devshim.cli import certify as certifying

    raise typer.Exit(certifying.main(backend, only or "*", quick, simulate, json))


@app.command()
def doctor() -> None:
    """Find out why there is no GPU, or what is wrong with one.

    Checks the driver, the environment variables that hide GPUs, and each installed framework: its version, whether
    its build supports GPUs, how many it sees and why no more. Then copies one number to each GPU and back. Exit code 1
    if something is broken.
    """
    from devshim.cli import doctor as diagnosing

    raise typer.Exit(diagnosing.main())


@app.command("new-backend")
def new_backend(
    name: Annotated[str, typer.Argument(metavar="NAME", hidden=True)],
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="FOLDER", help="The folder to create; devshim-NAME in this one by default."),
    ] = None,
) -> None:
    """Create a distribution with a backend for another array library, whose import name is NAME.

    It contains a class with the methods to write, a test file that runs the conformance kit on it, and a pyproject.toml
    that registers it.
    """
    from devshim.cli import new_backend as creating

    target = folder if folder is not None else Path(f"devshim-{name.replace('_', '-')}")
    problem = creating.problem_with(name, target)
    if problem is not None:
        raise typer.BadParameter(problem)
    raise typer.Exit(creating.main(name, target))
