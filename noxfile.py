"""The test matrix: ``nox`` runs everything that a change must pass, each session in an environment that it creates.

Versions are in pyproject's dependency groups, not here. Frameworks are installed with pip and virtualenv: PyTorch's CPU
builds are found through pip's own configuration.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

import nox

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.stop_on_first_error = False

PYPROJECT = nox.project.load_toml("pyproject.toml")
OTHER_PYTHONS = ["3.10", "3.12", "3.13"]  # tested by workflows, and on demand: CI has 50 minutes
NEXT = "3.14"  # tested every night, and on demand where it is installed
DEFAULT = "3.11"  # the only Python for which every framework of the matrix has a wheel
TESTS = Path("tests/backends")
EXAMPLES = "tests/examples"
RANKS = "tests/world"
FAILURES = f"{RANKS}/test_failure_matrix.py"
CLUSTERS = Path("examples/clusters")
YAML_RULES = "{extends: default, rules: {document-start: disable, line-length: {max: 120}}}"
LIBRARIES = "tests/libraries"
RESULTS = Path("build/results")
LOGS = Path("build/logs")
TOURS = Path("build/tours")
DEFAULTS = "tests/multi_framework/defaults.py"
RANK_CHECKPOINTS = "tests/multi_framework/rank_checkpoints.py"
RANK_SUMS = "tests/world/sums_page.py"
CONVERSIONS = "tests/multi_framework/conversions"
NATIVE_LINES = "tests/multi_framework/native_lines"
SUITES = "tests/ports/suites"
PORTS = ("docs/ports.json", "docs/ports.md")
NATIVE_TESTS = "tests/native_suites"
NATIVE_RESULTS = ("docs/native-suites.json", "docs/native-suites.md")
TUTORIALS = [page for page in sorted(Path("docs/tutorials").glob("*.md")) if page.name != "index.md"]
BENCH = Path("build/bench")
DIST = Path("build/dist")
WHEELS: list[Path] = []
"""The folder of devshim's wheel, once a session of this run has built it."""
CREATED: list[str] = []
"""Sessions whose environments this run has created before."""
BUILD = ("sphinx-build", "-q", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")
COVERAGE = Path("docs/coverage.json")
TOOLS = "devshim/__main__.py,devshim/cli/*,devshim/certify/*,devshim/testing/*"  # have their own tests
NATIVE_SCRIPTS = "test_native_scripts.py"
STUB = "STUB_CUPY_GPUS=2"
STUB_TESTS = [STUB, "tests/stub_cupy", "--ignore=tests/stub_cupy/test_kit.py"]
STRESS = 5
"""Seconds for which sixteen threads use a framework's simulated GPUs at the same time."""

FRAMEWORKS = {
    "numpy": ("numpy",),
    "torch": ("torch",),
    "tensorflow": ("tensorflow",),
    "paddle": ("paddle",),
    "jax": ("jax",),
    "mxnet1": ("numpy1", "mxnet-needs"),
    "mxnet2": ("numpy", "mxnet-needs"),
}
"""Session name -> dependency groups; MXNet itself is added without its dependencies."""
BESIDE = {"torch": ("accelerate", "keras", "torch-libraries"), "jax": ("keras", "flax")}
"""Session name -> groups of the libraries to which the tests compare devshim, or whose models they move."""
SETTINGS = {
    "jax": {
        "XLA_FLAGS": " ".join(
            (
                "--xla_backend_optimization_level=0",
                "--xla_cpu_parallel_codegen_split_count=1",
                "--xla_cpu_use_fusion_emitters=false",
            )
        ),
        "JAX_COMPILATION_CACHE_DIR": str(Path("build/jax-cache").resolve()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    },
}
"""Session name -> environment variables of its tests. JAX compiles every operator that a test uses: here once for all
processes, quickly, and without making it fast."""
ALONE = {
    "torch": (
        *("test_cards.py", "test_native_graphs.py", "test_native_names.py", "test_native_overrides.py"),
        *("test_native_torchscript.py", "test_platforms.py", "test_traps.py"),
    ),
    "tensorflow": (
        *("test_conversions.py", "test_guard_policy.py", "test_removed_gpus.py", "test_simulated_full.py"),
        "test_traps.py",
    ),
}
"""Session name -> files of tests that need a process in which no other test has used the framework; the others share
two processes. Scripts of PyTorch also change a process: their constants keep memory of its GPUs. The frameworks that
are not listed choose their GPUs once, when they start: there, each file is alone."""
SCRIPTED = [name for name in FRAMEWORKS if name != "numpy"]
"""The frameworks with their own names for GPUs."""
TESTED = {"torch": ("opinfo", "native-torch"), "jax": ("keras", "flax"), "tensorflow": ("keras",)}
"""Session name -> groups of the libraries whose tests and programs for GPUs `native` runs."""
OTHERS = [name for name in FRAMEWORKS if name != "numpy"]
"""The frameworks on which `world` does not test all failures of a rank."""
SOME = "kill-sum or exception-between or stop-sum or sleep-save or disagree-sum or (lost_host and sum) or caller-save"
"""These failures: a killed rank, an exception, a stopped rank, one that sleeps, one that makes another call, a lost
host, and a killed caller."""
STAGES = ("sum", "save", "start", "between")
"""Parts of the failure matrix, which run side by side: the moments at which a rank fails."""
ALIKE = "segfault- or exit- or launcher- or caller-start or caller-save or caller-between"
"""Failures that are like others for the engine of PyTorch, so that `world` tests them on NumPy alone: a process has
ended, as one that was killed; a launcher has ended, or its caller at another moment than in a sum."""
LAUNCHED = ("test_busy_hosts.py", "test_cluster_command.py", "test_failures.py", "test_output.py")
"""Files of tests of the launcher, in which no rank uses a framework."""
TRAINED = ("test_cluster.py", "test_example.py", "test_programs.py")
"""Files of tests whose ranks train; with PyTorch, they are a separate run."""
ON_NUMPY = (
    "test_cluster.py::test_two_hosts",
    "test_cluster.py::test_simulated_hosts_end_with_their_process",
    "test_sums.py::test_another_launcher_needs_only_its_variables",
    "test_sums.py::test_ranks_that_disagree_are_one_error",
    "test_listening.py",
)
"""Tests whose ranks use NumPy or no framework, and of where Ray listens: they need to run in one environment only."""
NOT_AGAIN = [f"--deselect={RANKS}/{each}" for each in ON_NUMPY]
WAITING = 5
"""How many runs of tests with several ranks start at once: a test waits for a seventh of its time even if four run."""
IN_TUTORIALS = [name for name in FRAMEWORKS if name != "mxnet1"]
PORTED = ["numpy", "torch", "jax", "tensorflow", "paddle"]
"""Frameworks that POT or TensorLy supports."""
FIRST = ["docs", "lint", "core", "typing"]
FIRST += [f"framework({name})" for name in FRAMEWORKS] + ["notebook", "ranks", "together"]
"""Sessions whose environments `environments` creates, one half in each of two processes."""
OLDEST = ["numpy", "torch", "tensorflow", "paddle", "jax", "mxnet"]
NIGHTLY = ["numpy", "torch", "tensorflow", "paddle", "jax"]
"""Frameworks that publish pre-releases; MXNet has had no release since 2022."""
ON_NEXT = ["numpy", "torch", "jax"]
"""Frameworks whose pinned versions have wheels for the Python that comes next."""


def install(session: nox.Session, *arguments: str) -> None:
    """Install into this session's environment; ``"."`` is devshim, as a wheel.

    Python writes bytecode files of what is imported, which is a small part of it, whatever the caller's environment
    says: many tests start processes, which would otherwise compile it again each time.
    """
    session.env["PYTHONDONTWRITEBYTECODE"] = ""
    if session.name in CREATED:
        return
    if "." in arguments:  # pip would not replace an older build of the same version together with what it needs
        found = ["--no-index", f"--find-links={wheel(session)}"]
        session.install("--no-compile", "--force-reinstall", "--no-deps", *found, "devshim")
        if "--no-deps" in arguments:
            return
    session.install("--no-compile", *["devshim" if each == "." else each for each in arguments])


def wheel(session: nox.Session) -> Path:
    """Return the folder of devshim's wheel, which the first session of this run builds for all: it takes 5 seconds."""
    if not WHEELS:
        folder = Path("build/wheels", session.name).resolve()
        shutil.rmtree(folder, ignore_errors=True)
        session.run_install("python", "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={folder}", ".")
        WHEELS.append(folder)
    return WHEELS[0]


def group(*names: str) -> list[str]:
    """Return the requirements of dependency groups."""
    return nox.project.dependency_groups(PYPROJECT, *names)


def backend_of(name: str) -> str:
    """Return the backend that a framework session tests."""
    return "mxnet" if name.startswith("mxnet") else name


def install_framework(session: nox.Session, name: str, *more: str) -> None:
    """Install one framework, devshim, and what the tests need, into this session's environment."""
    if name.startswith("mxnet"):
        install(session, "--no-deps", *group(name))
    install(session, *group(*FRAMEWORKS[name], *more), ".")


def pytests(session: nox.Session, runs: Iterable[Iterable[str | Path]], at_once: int = 2) -> None:
    """Run pytest once for each of these lists of arguments, some at a time, each in its own process.

    The output of a run appears when it ends, under its arguments, and is in build/logs from its begin. Every run ends
    before the first failure is raised. Leading arguments such as ``NAME=value`` are environment variables of that run.
    OpenMP has one thread in each: its threads wait by spinning, and those of two runs on two cores made PyTorch's kit
    take four times as long. Three runs at once are not faster: the longest run, a conformance kit, gets less of a core
    and finishes last.
    """
    LOGS.mkdir(parents=True, exist_ok=True)

    def run(number: int, arguments: list[str]) -> None:
        named = list(takewhile(lambda each: re.match(r"\w+=", each), arguments))
        env = {"OMP_NUM_THREADS": "1", **dict(each.split("=", 1) for each in named)}
        log = LOGS / f"{session.name}-{number}.txt"
        try:
            with log.open("w") as output:  # not a pipe: a process that a test has left would hold it open
                session.run("pytest", "-q", *arguments[len(named) :], *session.posargs, stdout=output, env=env)
        finally:
            print(f"pytest {' '.join(arguments)}\n{log.read_text(errors='replace')}", flush=True)

    with ThreadPoolExecutor(at_once) as pool:
        started = [pool.submit(run, number, list(map(str, words))) for number, words in enumerate(runs, 1)]
    for each in started:
        each.result()


@contextmanager
def beside(session: nox.Session, *command: str) -> Iterator[None]:
    """Run a command at the same time as the body, and wait for both."""
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(session.run, *command)
        yield
    started.result()


def pages(backend: str) -> list[Path]:
    """Return the pages whose examples may run on a framework: exactly those that each page allows are collected."""
    folders = [Path("docs"), *(Path("docs", name) for name in ("start", "tutorials", "guides", "reference"))]
    general = [Path("README.md"), *(page for folder in folders for page in sorted(folder.glob("*.md")))]
    return [*general, Path(f"docs/frameworks/{backend}.md")]


def install_all(session: nox.Session) -> None:
    """Install all frameworks into one environment, devshim, and what the tests need."""
    install(session, "--no-deps", *group("mxnet2"))
    install(session, *group("together", "mxnet-needs", "test"), ".")


def conform(session: nox.Session, name: str) -> None:
    """Run a backend's part of the conformance kit, without and with simulated GPUs, and its own tests."""
    backend = backend_of(name)
    RESULTS.mkdir(parents=True, exist_ok=True)
    folder = TESTS / backend
    kits = sorted(folder.glob("test_conformance*.py"))
    # Without pytest's handlers for log messages: for each test, it would add one to PyTorch's 60 loggers three times.
    plugin = ["-p", "devshim.testing.plugin", "-p", "no:logging", f"--devshim-stress={STRESS}"]
    runs = [[*plugin, kit, "--devshim-gpus=2", f"--devshim-results={RESULTS / name}-2-{kit.stem}.json"] for kit in kits]
    same = ["-m", "not fresh"]  # the others would be the same as with two
    runs.append([*plugin, *kits, "--devshim-gpus=0", f"--devshim-results={RESULTS / name}-0.json", *same])
    runs.append([*plugin, *kits, "--devshim-gpus=3", "-m", "cards"])
    apart = {*kits, folder / NATIVE_SCRIPTS}
    rest = [each for each in sorted(folder.glob("test_*.py")) if each not in apart]  # traps, simulated GPUs, models
    alone = [each for each in rest if each.name in ALONE.get(name, (each.name,))]
    shared = [each for each in rest if each not in alone]
    current = f"DEVSHIM_BACKEND={backend}"
    runs += [*([own] for own in alone), shared[::2], shared[1::2]] if shared else [[own] for own in alone]
    runs += [pages(backend), [current, EXAMPLES], [current, LIBRARIES]]
    pytests(session, runs)


def install_for_ranks(session: nox.Session) -> None:
    """Install PyTorch, Ray, devshim, and what the tests need; compile what the processes of a job import."""
    install_framework(session, "torch", "test", "ray")
    # Here and not in each of the processes that start at the same time.
    session.run("python", "-c", "import pytest, ray, torch, torch.distributed, devshim", silent=True)


def ranks_without_failures() -> list[list[str]]:
    """Return the runs of the tests with several ranks on NumPy, and of sums on PyTorch, without the failure matrix."""
    numpy, apart = "DEVSHIM_BACKEND=numpy", [f"{RANKS}/{each}" for each in LAUNCHED]
    on_torch = ("DEVSHIM_BACKEND=torch", RANKS, *NOT_AGAIN, *(f"--ignore={RANKS}/{each}" for each in TRAINED))
    ignored = [f"--ignore={each}" for each in (FAILURES, *apart)]
    return [
        [numpy, RANKS, *ignored],
        [numpy, *apart, "tests/unit/world/test_pickles.py"],  # that file needs Ray
        [*on_torch, *ignored],
    ]


def install_revived(session: nox.Session, name: str) -> None:
    """Install an MXNet with today's NumPy, devshim, and what the tests need."""
    install(session, "--no-deps", *group(name))
    install(session, *group("numpy", "mxnet-needs", "test"), ".")


def conform_again(session: nox.Session, name: str) -> None:
    """Run the kit on simulated GPUs, and a backend's tests of known traps, on versions other than the pinned ones.

    The kit is divided over two processes by the names of its tests, which contain their devices.
    """
    folder = TESTS / backend_of(name)
    kit = ["-p", "devshim.testing.plugin", folder / "test_conformance.py", "--devshim-gpus=2", "--devshim-stress=3"]
    pytests(session, [[*kit, "-k", "not gpu"], [*kit, "-k", "gpu"], [folder / "test_traps.py"]])


def check_style(session: nox.Session) -> None:
    """Check prose, and at the same time all that `check_files` does."""
    with beside(session, "pytest", "-q", "tests/prose"):
        check_files(session)


def check_files(session: nox.Session) -> None:
    """Check style, formatting, spelling, the stub of the package, and what describes the repository."""
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("codespell")
    session.run("python", "tests/typing/stub.py", "--check")
    for schema, pattern in (
        ("github-workflows", ".github/workflows/*.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/b*.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("citation-file-format", "CITATION.cff"),
    ):
        files = sorted(str(path) for path in Path().glob(pattern))
        session.run("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files)
    session.run("shellcheck", *map(str, sorted(CLUSTERS.glob("*.sh"))))
    files = [str(path) for path in sorted(CLUSTERS.glob("*.yaml"))]
    session.run("yamllint", "-s", "-d", YAML_RULES, *files)
    session.run("kubernetes-validate", "--strict", "--no-warn", *files)  # it has no schema of KubeRay's own kind
    session.run("pytest", "-q", "tests/repository")


def check_types(session: nox.Session) -> None:
    """Check the types of devshim, and of the tests that need no framework."""
    session.run("mypy")
    session.run("mypy", "--config-file", "tests/mypy.ini")


@nox.session(python=False)
def environments(session: nox.Session) -> None:
    """Create the environments of the other sessions, two at a time: pip uses one core."""
    command = [sys.executable, "-m", "nox", "--install-only", "--session"]
    with ThreadPoolExecutor(2) as pool:
        halves = FIRST[::2], FIRST[1::2]
        for each in [pool.submit(session.run_install, *command, *half, external=True, silent=True) for half in halves]:
            each.result()
    CREATED.extend(FIRST)


@nox.session(python=DEFAULT)
def lint(session: nox.Session) -> None:
    """Check style, formatting, spelling and prose, and that the stub of the package is up to date."""
    install(session, *group("lint", "test"))
    check_style(session)


@nox.session(python=DEFAULT)
def typing(session: nox.Session) -> None:
    """Check the types of devshim, and of a program that uses it, strictly; also what editors complete and explain.

    The frameworks themselves count as untyped.
    """
    install(session, *group("typing"), ".")
    with beside(session, "pytest", "-q", "tests/typing"):
        check_types(session)


@nox.session(python=DEFAULT, default=False)
def quick(session: nox.Session) -> None:
    """Check style, types and the fast unit tests with NumPy, in one environment and under three minutes."""
    install(session, *group("lint", "mypy", "kit", "plot"), ".")
    with beside(session, "pytest", "-q", "-n", "2", "tests/unit", "-m", "not slow", *session.posargs):
        check_style(session)
        check_types(session)


@nox.session(python=DEFAULT)
def core(session: nox.Session) -> None:
    """Test the neutral half and the command line with only NumPy, and the kit itself."""
    install(session, *group("test", "kit", "plot"), ".")
    slow = "tests/conformance/test_kit_can_fail.py"
    kit = ["-p", "devshim.testing.plugin", TESTS / "numpy/test_conformance.py", "--devshim-gpus=2"]
    shared = ["-n", "2", *kit, "-k", "place or copy or simulat"]  # a part of the kit as other projects distribute it
    conformance = ["tests/conformance", f"--ignore={slow}"]
    pytests(session, [["tests/unit", EXAMPLES], conformance, ["tests/cli"], [slow], STUB_TESTS, shared])


@nox.session(python=OTHER_PYTHONS, default=False)
def pythons(session: nox.Session) -> None:
    """Test the neutral half, the command line and the kit itself on other Pythons, and both MXNets on newer ones.

    Both MXNets are older than these Pythons, and than the newest NumPy.
    """
    install(session, *group("test", "kit", "plot"), ".")
    pytests(session, [["tests/conformance"], ["tests/cli"], ["tests/unit", EXAMPLES]])
    for name in ("mxnet1", "mxnet2") if session.python != OTHER_PYTHONS[0] else ():
        install_revived(session, name)
        conform_again(session, name)


@nox.session(python=NEXT, default=False)
@nox.parametrize("name", ON_NEXT, ids=ON_NEXT)
def newest(session: nox.Session, name: str) -> None:
    """Test the neutral half and NumPy, or another framework, on Python 3.14, where it is installed."""
    install_framework(session, name, "test", "kit", "plot")
    if name == "numpy":
        pytests(session, [["tests/unit", EXAMPLES], ["tests/cli"]])
    conform_again(session, name)


@nox.session(python=DEFAULT, default=False)
@nox.parametrize("name", NIGHTLY, ids=NIGHTLY)
def nightly(session: nox.Session, name: str) -> None:
    """Test the newest version of a framework, pre-releases included, from the indexes that pip is configured with."""
    unpinned = [re.split(r"[=<>!~ \[]", each)[0] for each in group(name)]
    install(session, *group("test"), ".")
    install(session, "--pre", "--upgrade", *unpinned)
    session.run("python", "-m", "pip", "list")
    conform_again(session, name)


@nox.session(python=DEFAULT, default=False)
def downstream(session: nox.Session) -> None:
    """Run programs of other projects on simulated GPUs of PyTorch: einops, POT and TensorLy."""
    install(session, *group("downstream", "test"), ".")
    session.run("pytest", "-q", "tests/downstream", *session.posargs)


@nox.session(python=DEFAULT, default=False)
@nox.parametrize("name", SCRIPTED, ids=SCRIPTED)
def native(session: nox.Session, name: str) -> None:
    """Run programs that are written for real GPUs with `devshim run`, and compare what they print.

    With ``-- suites``, run the frameworks' and libraries' own tests and programs instead, and add the results to
    docs/native-suites.md.
    """
    if session.posargs[:1] != ["suites"]:
        install_framework(session, name)
        session.run("pytest", "-q", TESTS / backend_of(name) / NATIVE_SCRIPTS, *session.posargs)
        return
    install_framework(session, name, "test", *TESTED.get(name, ()))
    session.run("pytest", "-q", f"{NATIVE_TESTS}/test_record.py")
    some = [0, 1]  # 1: a test failed, which the page says
    session.run("python", NATIVE_TESTS, name, "--write", NATIVE_RESULTS[0], *session.posargs[1:], success_codes=some)
    if name == "torch" and not session.posargs[1:]:
        session.run("python", "tests/opinfo", "--native-names", "--record", NATIVE_RESULTS[0], success_codes=some)
    session.run("python", f"{NATIVE_TESTS}/native_record.py", "--write", *NATIVE_RESULTS)


@nox.session(python=DEFAULT, default=False)
@nox.parametrize("name", PORTED, ids=PORTED)
def ports(session: nox.Session, name: str) -> None:
    """Run POT and TensorLy with the device code of devshim, on NumPy and another framework: examples/ports.

    With ``-- suites``, run the test suites of both projects instead, and add the results to docs/ports.md.
    """
    install_framework(session, name, "test", "ports")
    if session.posargs[:1] != ["suites"]:
        session.run("pytest", "-q", "tests/ports", *session.posargs)
        return
    session.run("python", SUITES, name, "--write", PORTS[0], *session.posargs[1:])
    session.run("python", f"{SUITES}/suite_record.py", "--write", *PORTS)


@nox.session(python=DEFAULT, default=False)
def coverage(session: nox.Session) -> None:
    """Measure and record the lines and branches of the neutral half that unit tests and the NumPy kit run.

    Subprocesses that tests start are not measured, so the figure is a lower bound.
    """
    install(session, *group("test", "kit", "plot", "coverage", "numpy"), ".")
    measure = ["coverage", "run", "--append", "--branch", "--source=devshim", "-m", "pytest", "-q"]
    kit = ["-p", "devshim.testing.plugin", str(TESTS / "numpy/test_conformance.py"), "--devshim-gpus=2"]
    session.run("coverage", "erase")
    session.run(*measure, "tests/unit", "-m", "not slow")
    session.run(*measure, *kit)
    report = Path(session.create_tmp()) / "coverage.json"
    session.run("coverage", "json", "-q", f"--omit={TOOLS}", "-o", str(report))
    session.run("python", "tests/coverage/record.py", str(report), str(COVERAGE))


@nox.session(python=DEFAULT, default=False)
def mutants(session: nox.Session) -> None:
    """Make small faults in the neutral half, and check which of them its tests notice."""
    install(session, *group("test", "kit", "mutants", "numpy"), ".")
    session.run("pytest", "-q", "tests/mutants")
    session.run("python", "tests/mutants", *session.posargs)


@nox.session(python=DEFAULT)
def notebook(session: nox.Session) -> None:
    """Test the output in a notebook, in a Jupyter kernel, and `devshim tutorial`, which runs pages in such kernels."""
    install(session, *group("test", "notebook", "tutorial", "ray"), ".")
    pytests(session, [["tests/tutorial"], ["tests/notebook"]])


@nox.session(name="jupyter-lab", python=DEFAULT, default=False)
def jupyter_lab(session: nox.Session) -> None:
    """Test a notebook in JupyterLab, with a real server and a headless Chromium, which must be installed."""
    install(session, *group("test", "jupyter-lab"), ".")
    session.run("pytest", "-q", "tests/jupyter_lab", *session.posargs)


@nox.session(python="3.13t", default=False)
def free_threaded(session: nox.Session) -> None:
    """Test the neutral half, and threads on NumPy, without the global interpreter lock.

    Tests that need safetensors, ml_dtypes or matplotlib are left out: these, or their dependencies, have no wheel for
    that Python.
    """
    install(session, *group("free-threaded"))
    install(session, "--no-deps", ".")
    unlocked = ["python", "-X", "gil=0", "-m", "pytest", "-q"]
    without = "not loaded_into_an_array_there and not computed_in_order_and_in_the_dtype and not the_picture"
    neutral = ["tests/unit", "-m", "not slow", "--ignore=tests/unit/checkpoints", "-k", without]
    kit = ["-p", "devshim.testing.plugin", str(TESTS / "numpy/test_conformance.py"), "--devshim-gpus=2"]
    threads = "thread or task or observers or guard or memory_is or a_card"
    session.run(*unlocked, *neutral, *session.posargs)
    session.run(*unlocked, *kit, f"--devshim-stress={STRESS}", "-k", threads, *session.posargs)


@nox.session(python=DEFAULT)
@nox.parametrize("name", list(FRAMEWORKS), ids=list(FRAMEWORKS))
def framework(session: nox.Session, name: str) -> None:
    """Test one framework's adapter in its own environment, without and with simulated GPUs."""
    install_framework(session, name, "test", *BESIDE.get(name, ()))
    session.env.update(SETTINGS.get(name, {}))
    conform(session, name)


@nox.session(python=DEFAULT, default=False)
def opinfo(session: nox.Session) -> None:
    """Check every operator in the operator database of PyTorch on a simulated GPU, and print how many pass."""
    install_framework(session, "torch", "opinfo", "test")
    session.run("pytest", "-q", "tests/opinfo")
    session.run("python", "tests/opinfo", *session.posargs)


@nox.session(python=DEFAULT)
def together(session: nox.Session) -> None:
    """Test all frameworks in one interpreter, MXNet included, in the import orders that crash without devshim."""
    install_all(session)
    session.env.update(SETTINGS["jax"])
    pytests(session, [[file] for file in sorted(Path("tests/multi_framework").glob("test_*.py"))])


@nox.session(python=DEFAULT)
def ranks(session: nox.Session) -> None:
    """Start several ranks with Ray on NumPy, let them fail in seven ways, look for leftovers; sum with PyTorch."""
    install_for_ranks(session)
    pytests(session, [["DEVSHIM_BACKEND=numpy", FAILURES, "-k", SOME], *ranks_without_failures()], at_once=WAITING)


@nox.session(python=DEFAULT, default=False)
def world(session: nox.Session) -> None:
    """Start several ranks with Ray on NumPy and PyTorch, make them fail in every way, and look for leftovers."""
    install_for_ranks(session)
    numpy, torch = "DEVSHIM_BACKEND=numpy", "DEVSHIM_BACKEND=torch"
    trained = [torch, *(f"{RANKS}/{each}" for each in TRAINED), *NOT_AGAIN]
    on_numpy = [[numpy, FAILURES, "-k", f"{first} or {second}"] for first, second in (STAGES[:2], STAGES[2:])]
    on_torch = [[torch, FAILURES, "-k", f"{stage} and not ({ALIKE})"] for stage in STAGES]
    *rest, shortest = ranks_without_failures()
    # The longest first: at the end, no core waits for a run that started late.
    pytests(session, [on_numpy[0], trained, *rest, on_numpy[1], *on_torch, shortest], at_once=WAITING)


@nox.session(name="world-others", python=DEFAULT, default=False)
@nox.parametrize("name", OTHERS, ids=OTHERS)
def world_others(session: nox.Session, name: str) -> None:
    """Train with several ranks on another framework, and let a rank, a host and the caller fail in seven ways.

    On PyTorch, they fail in the ways that `world` does not test there.
    """
    install_framework(session, name, "test", "ray")
    current = f"DEVSHIM_BACKEND={backend_of(name)}"
    matrix = [FAILURES, "-k", ALIKE if name == "torch" else SOME]
    pytests(session, [[current, *matrix], [current, f"{RANKS}/test_example.py", f"{RANKS}/test_programs.py"]])


@nox.session(name="world-random", python=DEFAULT, default=False)
@nox.parametrize("name", list(FRAMEWORKS), ids=list(FRAMEWORKS))
def world_random(session: nox.Session, name: str) -> None:
    """Let ranks, hosts and launchers fail at random; the seed is printed, and ``-- --seed 7`` repeats it."""
    install_framework(session, name, "test", "ray")
    session.run("python", f"{RANKS}/random_failures.py", *session.posargs)


@nox.session(name="world-many", python=DEFAULT, default=False)
def world_many(session: nox.Session) -> None:
    """Start 64 ranks of NumPy, and measure the launcher with a model of 1,000 hosts."""
    install_framework(session, "numpy", "test", "ray")
    session.run("pytest", "-q", "tests/world_many", *session.posargs, env={"DEVSHIM_BACKEND": "numpy"})
    session.run("python", f"{RANKS}/launcher_model.py", "1000")


@nox.session(python=DEFAULT)
def package(session: nox.Session) -> None:
    """Build sdist and wheel, check their contents, and run what is installed from the sdist."""
    install(session, *group("package", "test"))
    shutil.rmtree(DIST, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", str(DIST), ".", silent=True)
    session.run("pytest", "-q", "tests/package", f"--dist={DIST}")
    install(session, "--force-reinstall", "--no-deps", str(next(DIST.glob("*.tar.gz"))))
    install(session, "devshim", f"--find-links={DIST}")
    session.run("devshim", "tour", "--backend", "numpy")


@nox.session(python=DEFAULT)
def docs(session: nox.Session) -> None:
    """Check the generated tables, and build the pages without a warning; `framework` runs their examples."""
    install(session, *group("docs", "test"), ".")
    with beside(session, *BUILD):
        check_pages(session)


def check_pages(session: nox.Session) -> None:
    """Check that the generated pages say what their records say, and test the extension for Sphinx."""
    session.run("python", "-m", "devshim.testing.table", "--check", "docs/support.json", "docs/support.md")
    session.run("python", CONVERSIONS, "--check", "docs/conversions.json", "docs/conversions.md")
    session.run("python", DEFAULTS, "--check", "docs/defaults.json", "docs/defaults.md")
    session.run("python", RANK_SUMS, "--check", "docs/rank-sums.json", "docs/rank-sums.md")
    session.run("python", NATIVE_LINES, "--check", "docs/native-lines.json", "docs/from-your-framework.md")
    session.run("python", "-m", "devshim.certify.page", "--check", "docs/certified", "docs/real-cards.md")
    session.run("python", "tests/array_api/page.py", "--check", "docs/array-api.json", "docs/array-api.md")
    session.run("python", "tests/pages/command_line.py", "--check", "docs/reference/command-line.md")
    session.run("python", f"{SUITES}/suite_record.py", "--check", *PORTS)
    session.run("python", f"{NATIVE_TESTS}/native_record.py", "--check", *NATIVE_RESULTS)
    session.run("devshim", "tutorial", "check", "--recorded", *map(str, TUTORIALS), silent=True)
    session.run("pytest", "-q", "tests/sphinx")


@nox.session(python=DEFAULT, default=False)
def site(session: nox.Session) -> None:
    """Build the pages, and open each in a headless Chromium, which must be on the path, or named by DEVSHIM_CHROMIUM.

    With ``-- picture``, draw the pictures of README.md instead.
    """
    install(session, *group("docs", "browser", "test"), ".")
    shutil.rmtree("docs/_build", ignore_errors=True)  # pages of source code that another build left have no anchors
    session.run(*BUILD)
    if session.posargs[:1] == ["picture"]:
        session.run("python", "tests/browser/picture.py", "docs/_static")
        return
    session.run("pytest", "-q", "tests/browser", *session.posargs)


@nox.session(python=DEFAULT, default=False)
@nox.parametrize("name", OLDEST, ids=OLDEST)
def oldest(session: nox.Session, name: str) -> None:
    """Test the oldest supported version of a framework."""
    needs = ("mxnet-needs",) if name == "mxnet" else ()
    if name == "mxnet":
        install(session, "--no-deps", *group("mxnet1"))
    beside = [each for each in BESIDE.get(name, ()) if each != "flax"]  # today's flax needs today's JAX
    install(session, *group(f"oldest-{name}", *needs, "test", *beside), ".")
    conform_again(session, name)


@nox.session(python=DEFAULT, default=False)
def tour(session: nox.Session) -> None:
    """Run the tour on every framework, each in its environment, and show all side by side."""
    TOURS.mkdir(parents=True, exist_ok=True)
    for name in FRAMEWORKS:
        session.notify(f"tour_one-{DEFAULT}({name})")
    session.notify(f"tour_compare-{DEFAULT}")


@nox.session(python=DEFAULT, default=False)
@nox.parametrize("name", list(FRAMEWORKS), ids=list(FRAMEWORKS))
def tour_one(session: nox.Session, name: str) -> None:
    """Run the tour on one framework."""
    install_framework(session, name)
    TOURS.mkdir(parents=True, exist_ok=True)
    record = TOURS / f"{name}.json"
    session.run("devshim", "tour", "--backend", backend_of(name), "--gpus", "2", "--json", str(record))


@nox.session(python=DEFAULT, default=False)
def tour_compare(session: nox.Session) -> None:
    """Show the tours side by side, and record their native lines for readers without a framework."""
    install(session, ".")
    recorded = [str(TOURS / f"{name}.json") for name in FRAMEWORKS if name != "mxnet1"]
    session.run("python", "-m", "devshim.cli.records", "examples/tour/records.json", *recorded)
    session.run("devshim", "compare", *(str(TOURS / f"{name}.json") for name in FRAMEWORKS))


@nox.session(python=DEFAULT, default=False)
def bench(session: nox.Session) -> None:
    """Measure every framework against its native calls and other libraries, and generate docs/benchmarks.md."""
    for name in FRAMEWORKS:
        session.notify(f"bench_one-{DEFAULT}({name})")
    session.notify(f"bench_report-{DEFAULT}")


@nox.session(python=DEFAULT, default=False)
@nox.parametrize("name", list(FRAMEWORKS), ids=list(FRAMEWORKS))
def bench_one(session: nox.Session, name: str) -> None:
    """Measure one framework; the results stay in build/bench."""
    install_framework(session, name, "bench", f"bench-{backend_of(name)}")
    session.run("python", "-m", "benchmarks", name, "--results-only", *session.posargs)


@nox.session(python=DEFAULT, default=False)
def bench_report(session: nox.Session) -> None:
    """Generate docs/benchmarks.md, its record and its plots from the measurements."""
    install(session, *group("plot"), ".")
    session.run("python", "-m", "benchmarks.report", *(str(BENCH / f"{name}.json") for name in FRAMEWORKS))


@nox.session(python=DEFAULT, default=False)
def support(session: nox.Session) -> None:
    """Generate docs/support.md from the adapters' declarations and the results of the framework sessions."""
    install(session, ".")
    found = sorted(str(path) for path in RESULTS.glob("*.json"))
    session.run("python", "-m", "devshim.testing.table", "--write", "docs/support.json", "docs/support.md", *found)


@nox.session(python=DEFAULT, default=False)
def certified(session: nox.Session) -> None:
    """Generate docs/real-cards.md from the output of `devshim certify --json` on machines with GPUs."""
    install(session, ".")
    session.run("python", "-m", "devshim.certify.page", "--write", "docs/certified", "docs/real-cards.md")


@nox.session(python=DEFAULT, default=False)
def conversions(session: nox.Session) -> None:
    """Generate docs/conversions.md from conversions between all frameworks, in every dtype and memory layout."""
    install_all(session)
    session.run("python", CONVERSIONS, "--write", "docs/conversions.json", "docs/conversions.md")


@nox.session(python=DEFAULT, default=False)
def rank_checkpoints(session: nox.Session) -> None:
    """Save with 4 ranks of PyTorch, load with 1, 3 and 7 of every framework, and kill ranks 200 times in a save."""
    folder = str(Path(session.create_tmp(), "checkpoint").resolve())
    install_framework(session, "torch", "test", "ray")
    session.run("python", RANK_CHECKPOINTS, "--write", "torch", folder)
    for name in FRAMEWORKS:
        install_framework(session, name, "test")
        session.run("python", RANK_CHECKPOINTS, "--read", backend_of(name), folder, env={"JAX_ENABLE_X64": "1"})
    session.run("pytest", "-q", "tests/unit/checkpoints/test_ranks.py", "-m", "slow")


@nox.session(python=DEFAULT, default=False)
def rank_sums(session: nox.Session) -> None:
    """Generate docs/rank-sums.md from sums of random values over 2 and 3 processes, with each framework's engine."""
    results = []
    for name in ("torch", "jax", "tensorflow", "paddle", "numpy"):
        install_framework(session, name, "test", "ray")
        engine = "portable" if name == "numpy" else name
        results.append(str(Path(session.create_tmp(), f"{engine}.json").resolve()))
        session.run("python", RANK_SUMS, "--measure", engine, results[-1])
    session.run("python", RANK_SUMS, "--write", "docs/rank-sums.json", "docs/rank-sums.md", *results)


@nox.session(python=DEFAULT, default=False)
def native_lines(session: nox.Session) -> None:
    """Generate docs/from-your-framework.md from the native lines that `ds.explain` records on every framework."""
    install_all(session)
    session.run("python", NATIVE_LINES, "--write", "docs/native-lines.json", "docs/from-your-framework.md")


@nox.session(python=DEFAULT, default=False)
def tutorials(session: nox.Session) -> None:
    """Run the tutorials on every framework, each in its environment, and compare what the frameworks print."""
    for name in IN_TUTORIALS:
        session.notify(f"tutorials_one-{DEFAULT}({name})")
    session.notify(f"tutorials_compare-{DEFAULT}")


@nox.session(python=DEFAULT, default=False)
@nox.parametrize("name", IN_TUTORIALS, ids=IN_TUTORIALS)
def tutorials_one(session: nox.Session, name: str) -> None:
    """Run the tutorials on one framework, and write the records from which the pages are built."""
    install_framework(session, name, "test", "tutorial", "ray")  # Ray starts the ranks of many-machines.md
    backend = backend_of(name)
    pages = [str(page) for page in TUTORIALS if backend in page.read_text(encoding="utf-8").split("---")[1]]
    session.run("devshim", "tutorial", "run", "--fresh", *pages, "-f", backend, "--env", f"{backend}=here")


@nox.session(python=DEFAULT, default=False)
def tutorials_compare(session: nox.Session) -> None:
    """Compare the records of all frameworks."""
    install(session, *group("tutorial"), ".")
    session.run("devshim", "tutorial", "check", "--recorded", *map(str, TUTORIALS))


@nox.session(name="fake-cuda", python=DEFAULT, default=False)
@nox.parametrize("framework", ["torch", "jax", "tensorflow"], ids=["torch", "jax", "tensorflow"])
def fake_cuda(session: nox.Session, framework: str) -> None:
    """Run the CUDA builds of PyTorch, JAX and TensorFlow on GPUs that do not exist: contexts, copies and errors.

    This needs Linux with g++ and nm; PyTorch's wheel takes 1.2 GB. The NVIDIA libraries that they need are built from
    tests/fake_cuda. PyTorch's ``gpu``-marked tests also run there, with one GPU and with four; those that must fail are
    listed. Its tests of native names run without a GPU, as on most machines that have PyPI's build.
    """
    folder = Path(session.create_tmp()).resolve()  # for processes that start in other folders
    headers, libraries = folder / "headers", folder / "libraries"
    name = "fake-cuda" if framework == "torch" else f"fake-cuda-{framework}"
    install(session, "--no-deps", *group(name))  # without NVIDIA's own libraries, which take 4 GB
    install(session, *group(f"{name}-needs", "test"), ".")
    install(session, "--no-deps", "--upgrade", "--target", str(headers), *group("cuda-headers"))
    session.run("python", "tests/fake_cuda/build.py", str(headers), str(libraries))
    here = {"FAKE_CUDA_LIBRARIES": str(libraries), "LD_LIBRARY_PATH": str(libraries), "OMP_NUM_THREADS": "1"}
    session.run("python", "-m", "pytest", "-q", "tests/fake_cuda", *session.posargs, env=here)
    if framework != "torch":
        return
    here |= {"DISABLE_ADDMM_CUDA_LT": "1", "FAKE_CUDA_MEMORY": str(1 << 31)}  # cuBLASLt does not exist here
    marked = ["-m", "gpu", "-p", "devshim.testing.plugin", "-p", "needs_kernels"]
    plain = ["--assert=plain", "--tb=short"]  # otherwise pytest prints tensors of garbage, which can take all memory
    files = sorted(map(str, (TESTS / "torch").glob("test_*.py")))
    for count in ("1", "4"):
        env = {**here, "FAKE_CUDA_GPUS": count}
        some = [0, 5] if session.posargs else [0]  # 5: `-- -k words` has selected none of these tests
        words = ["python", "-m", "pytest", "-q", *marked, *plain, *files, *session.posargs]
        session.run(*words, env=env, success_codes=some)
    native = [str(TESTS / f"torch/test_native_{each}.py") for each in ("names", "scripts")]
    here["FAKE_CUDA_GPUS"] = "0"
    session.run("python", "-m", "pytest", "-q", *native, *session.posargs, env=here, success_codes=some)


@nox.session(python=DEFAULT, default=False)
def cupy(session: nox.Session) -> None:
    """Run the conformance kit on CuPy without a GPU, which is its half in host memory, and on the stub of CuPy."""
    install(session, *group("cupy", "test"), ".")
    RESULTS.mkdir(parents=True, exist_ok=True)
    plugin, kit = ["-p", "devshim.testing.plugin"], str(TESTS / "cupy/test_conformance.py")
    on_host = [*plugin, kit, "--devshim-gpus=0", f"--devshim-results={RESULTS}/cupy-0.json"]
    on_stub = [STUB, *plugin, "tests/stub_cupy/test_kit.py", "-m", "gpu and not fresh"]
    pytests(session, [on_host, on_stub, STUB_TESTS])


@nox.session(name="array-api", python=DEFAULT, default=False)
@nox.parametrize("name", list(FRAMEWORKS), ids=list(FRAMEWORKS))
def array_api(session: nox.Session, name: str) -> None:
    """Check every function of the array API on one framework, and write docs/array-api.md.

    The suite array-api-tests is not on PyPI, so tests/array_api has its own checker, whose reference is
    array-api-strict.
    """
    install_framework(session, name, "test", "array-api")
    result = Path(session.create_tmp()).resolve() / f"{name}.json"
    session.run("python", "tests/array_api", name, str(result))
    page = ("docs/array-api.json", "docs/array-api.md")
    session.run("python", "tests/array_api/page.py", "--write", *page, str(result))


@nox.session(python=False, default=False)
def gpu(session: nox.Session) -> None:
    """Run the GPU part of the suite with the frameworks that this Python has, on a machine with GPUs."""
    session.run("pytest", "-q", "-m", "gpu", "-p", "devshim.testing.plugin", "tests/backends", *session.posargs)
