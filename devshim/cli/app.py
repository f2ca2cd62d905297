"""The commands' names, options and help texts; each command's code is in the module of its name.

Requirements of this module:

* Help imports no framework, not even NumPy: a command's module is imported when the command runs.
* An error of devshim is printed as its message and a hint, without a traceback; exit code 1. Wrong usage exits with 2.
* A command is a function whose result is the exit code.
"""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from devshim import __version__
from devshim.cli._cluster_commands import cluster
from devshim.cli._groups import BACKEND, PATH, Group, ProgramCommand
from devshim.cli._launch_command import launch
from devshim.cli._smi_command import smi
from devshim.cli._tabs_command import tabs
from devshim.cli._tutorial_commands import tutorial

__all__ = ["app"]


@click.group(
    cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, no_args_is_help=True
)
@click.version_option(__version__, message="%(prog)s %(version)s", help="Print the version and exit.")
def app() -> None:
    """One Device/Placement API with the same behaviour on PyTorch, TensorFlow, MXNet, PaddlePaddle, JAX and NumPy."""


@app.command()
@BACKEND
@click.option(
    "--gpus",
    type=click.IntRange(0, 64),
    metavar="N",
    help="How many GPUs to simulate if there are no real ones; 2 unless DEVSHIM_SIMULATE_GPUS is set.",
)
@click.option(
    "--json", type=PATH, metavar="FILE", help="Also write the results to a JSON file; '-' prints only the JSON."
)
def tour(backend: str | None, gpus: int | None, json: Path | None) -> int:
    """Run the GPU chapter of Dive into Deep Learning on a framework, and check each step.

    Each step shows the devshim line, the framework's own line for it, and whether its condition is true.
    Without another framework, it runs on NumPy with two simulated GPUs. Exit code 1 if a step fails.
    """
    from devshim.cli import tour as touring

    return touring.main(backend, gpus, json)


@app.command(cls=ProgramCommand)
@click.option(
    "--gpus",
    type=click.IntRange(1, 64),
    metavar="N",
    help="How many GPUs to simulate; 2 unless DEVSHIM_SIMULATE_GPUS is set.",
)
@click.option("--memory", metavar="SIZE", help="Memory of each GPU, such as 4GiB; default: no limit.")
@click.option("--like", metavar="PLATFORM", help="The platform to imitate: cuda (default), mps or xpu.")
@click.option(
    "--native-names/--no-native-names",
    default=None,
    help='Whether native names, such as "cuda:1", mean simulated GPUs; default: where the framework can.',
)
@click.option(
    "--async-copies",
    metavar="WHEN",
    help="When non-blocking copies arrive: immediate (default) or late, which finds missing waits.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Run nothing: list the program's calls that cannot be simulated; exit code 1 if there are any.",
)
@BACKEND
def run(
    program: list[str],
    gpus: int | None,
    memory: str | None,
    like: str | None,
    native_names: bool | None,
    async_copies: str | None,
    check: bool,
    backend: str | None,
) -> int:
    """Run a Python program with simulated GPUs, as 'python SCRIPT', 'python -m MODULE' or 'python -c CODE' would.

    Every framework that the program imports sees the simulated GPUs, even in processes that the program starts.
    Real GPUs are hidden. Options after the program are passed to it; the exit code is the program's.
    """
    if check:
        from devshim.cli import native_calls

        return native_calls.main(program)
    from devshim.cli import run as running

    running.main(gpus, memory, backend, program, like, native_names, async_copies)


@app.command()
@click.argument("files", nargs=-1, type=PATH, metavar="[FILE]...")
def compare(files: tuple[Path, ...]) -> int:
    """Show tours of several frameworks side by side.

    'devshim tour --json FILE' writes a FILE. Without files it shows the lines of every framework that were
    recorded for this version of devshim.
    Exit code 1 if a step of a file failed.
    """
    from devshim.cli import compare as comparing

    return comparing.main(files) if files else comparing.show_records()


@app.command()
@BACKEND
@click.option("--json", is_flag=True, help="Print a list as JSON: sizes in bytes, null where unknown.")
def devices(backend: str | None, json: bool) -> int:
    """List the devices of every installed framework, or of one, with their memory.

    Each framework runs in a separate process, because several in one process may crash. Simulated GPUs
    (DEVSHIM_SIMULATE_GPUS=2) are listed and marked. Exit code 1 if a framework is broken.
    """
    from devshim.cli import devices as listing

    return listing.main(backend, json)


@app.command()
@BACKEND
@click.option(
    "--only", default="*", metavar="PATTERN", help="Check only the claims whose names match, such as 'torch.*'."
)
@click.option("--quick", is_flag=True, help="Use an eighth of the memory and fewer rounds for the rates.")
@click.option("--json", type=PATH, metavar="FILE", help="Also write every result as JSON, for a bug report.")
@click.option("--simulate", is_flag=True, help="Try the checks on two simulated GPUs; this certifies nothing.")
def certify(backend: str | None, only: str, quick: bool, json: Path | None, simulate: bool) -> int:
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


@app.command(name="new-backend")
@click.argument("name", metavar="NAME")
@click.option(
    "--folder", type=PATH, metavar="FOLDER", help="The folder to create; devshim-NAME in this one by default."
)
def new_backend(name: str, folder: Path | None) -> int:
    """Create a distribution with a backend for another array library, whose import name is NAME.

    It contains a class with the methods to write, a test file that runs the conformance kit on it, and a pyproject.toml
    that registers it.
    """
    from devshim.cli import new_backend as creating

    target = folder if folder is not None else Path(f"devshim-{name.replace('_', '-')}")
    problem = creating.problem_with(name, target)
    if problem is not None:
        raise click.UsageError(problem)
    return creating.main(name, target)


@app.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL")
def completion(shell: str) -> None:
    """Print a script that completes commands and options with the Tab key; SHELL is bash, zsh or fish.

    For bash, add this line to ~/.bashrc: eval "$(devshim completion bash)". For zsh, the same with zsh in ~/.zshrc,
    below compinit. For fish: devshim completion fish > ~/.config/fish/completions/devshim.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(app, {}, "devshim", "_DEVSHIM_COMPLETE").source())


for _command in (smi, tabs, launch, cluster, tutorial):
    app.add_command(_command)
