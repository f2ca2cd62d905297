"""Run the tests of POT and TensorLy on simulated GPUs: ``python tests/ports/suites torch --write docs/ports.json``.

The tests come from the projects' source distributions in the package index, of the versions that are installed. They
run without devshim; those that pass run again in each other mode of `suite_plugin.MODES`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "helpers"))

import suite_plugin
from suite_files import read, run_all
from suite_record import ON_GPU, merge, summary, tests_that_pass

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
DISTRIBUTIONS = {"pot": "POT", "tensorly": "tensorly"}
FILES = {"pot": "test/test_*.py", "tensorly": "tensorly/**/tests/test_*.py"}
SECONDS = {"without": 60}
"""The time limit of a test, by mode: tests that take long without devshim do not count."""
MORE_SECONDS = 240
DEVSHIM_RUN = ("-m", "devshim", "run", "--gpus", "2")


def main() -> int:
    """Run what is asked for, write the record, and print a summary; return 1 if simulated GPUs break a test."""
    asked = arguments()
    broken = 0
    with tempfile.TemporaryDirectory(prefix="suites-") as temporary:
        folder = (asked.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for project in asked.projects:
            if asked.framework not in suite_plugin.OWN_NAMES[project]:
                continue
            tree = source(project, folder)
            for mode in asked.modes:
                run(project, tree, asked.framework, mode, folder, asked)
            outcomes = {mode: read(outcomes_of(folder, project, asked.framework, mode)) for mode in suite_plugin.MODES}
            run_record = summary(project, asked.framework, versions(project, asked.framework), outcomes)
            run_record |= {"each": asked.each, "only": asked.only}
            broken += len(run_record["broken"])
            short = {mode: {**run_record[mode], "causes": "..."} for mode in ON_GPU if mode in run_record}
            print(json.dumps({**run_record, **short}, indent=1))
            if asked.write:
                merge(asked.write, run_record)
    return int(broken > 0)


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("framework", choices=list(suite_plugin.OWN_NAMES["tensorly"]))
    parser.add_argument("--projects", nargs="+", default=list(DISTRIBUTIONS), choices=list(DISTRIBUTIONS))
    parser.add_argument("--modes", nargs="+", default=list(suite_plugin.MODES), choices=list(suite_plugin.MODES))
    parser.add_argument("--each", type=int, default=3, help="the most parameter sets of a test; some have a hundred")
    parser.add_argument("--only", default="", help="a regular expression for the paths of the files to run")
    parser.add_argument("--keep", type=Path, help="a folder for the sources and outcomes, so that a run can continue")
    parser.add_argument("--write", type=Path, metavar="JSON", help="the record to which the results are added")
    return parser.parse_args()


def source(project: str, folder: Path) -> Path:
    """Return the tree of a project's source distribution, downloaded with pip."""
    name = DISTRIBUTIONS[project]
    wanted = f"{name}=={version(name)}"
    archives = folder / "archives"
    found = sorted(archives.glob(f"{project}-{version(name)}*.tar.gz"))
    if not found:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", name]
        subprocess.run([*pip, wanted, "--dest", str(archives)], check=True)
        found = sorted(archives.glob(f"{project}-*.tar.gz"))
    (archive,) = found
    tree = folder / archive.name.removesuffix(".tar.gz")
    if not tree.exists():
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    return tree


def versions(project: str, framework: str) -> dict[str, str]:
    """Return the versions of a project and a framework."""
    installed = {"tensorflow": "tensorflow-cpu", "paddle": "paddlepaddle"}.get(framework, framework)
    return {project: version(DISTRIBUTIONS[project]), framework: version(installed)}


def run(project: str, tree: Path, framework: str, mode: str, folder: Path, asked: argparse.Namespace) -> None:
    """Run all files of tests in one process; a test of which the process dies has failed."""
    target = outcomes_of(folder, project, framework, mode)
    entries = run_all(
        target,
        lambda: run_once(project, tree, framework, mode, target, asked),
        lambda ended: {"outcome": "failed", "error": "Ended", "text": ended, "site": "", "in": "test"},
        f"{project} on {framework}, {mode}",
    )
    print(f"{project} {framework} {mode}: {len(entries)} entries", flush=True)


def run_once(project: str, tree: Path, framework: str, mode: str, target: Path, asked: argparse.Namespace) -> str:
    """Run the tests that have no outcome yet, and return how the process ended."""
    files = sorted(file for file in tree.glob(FILES[project]) if re.search(asked.only, str(file.relative_to(tree))))
    start = tree / "test" if project == "pot" else tree  # POT itself is compiled, so it is the installed one
    options = {
        "project": project,
        "framework": framework,
        "mode": mode,
        "outcomes": str(target),
        "each": str(asked.each),
    }
    if mode != "without":
        options["right"] = str(target.with_suffix(".right.json"))
        right = sorted(tests_that_pass(read(target.parent / f"{project}-{framework}-without.jsonl")))
        Path(options["right"]).write_text(json.dumps(right), encoding="utf-8")
    command = [sys.executable, "-P", *(DEVSHIM_RUN if mode == "native" else ()), "-m", "pytest"]
    command += ["-q", "--no-header", "-p", "no:cacheprovider", "--tb=short"]
    command += ["-p", "no:devshim", "-p", "suite_plugin", "-c", os.devnull, f"--rootdir={tree}"]
    target.parent.mkdir(parents=True, exist_ok=True)
    command += [
        f"--timeout={SECONDS.get(mode, MORE_SECONDS)}",
        *(f"--suite-{key}={value}" for key, value in options.items()),
    ]
    command += [str(file.relative_to(start)) for file in files]
    with target.with_suffix(".txt").open("a", encoding="utf-8") as printed:
        done = subprocess.run(
            command, cwd=start, env=environment(project, framework, tree), stdout=printed, stderr=printed, check=False
        )
    return f"exit status {done.returncode}"


def environment(project: str, framework: str, tree: Path) -> dict[str, str]:
    """Return the environment of a run: one framework, and this folder for the plugin."""
    path = [str(HERE), str(ROOT / "tests/helpers"), str(ROOT), str(ROOT / "backends")]
    # POT's test of its build looks for a module in ot/helpers of the current directory, which is another one here.
    path += [str(tree if project == "tensorly" else tree / "ot/helpers")]
    names = {"torch": "PYTORCH", "jax": "JAX", "tensorflow": "TENSORFLOW", "cupy": "CUPY"}
    others = {f"POT_BACKEND_DISABLE_{name}": "1" for each, name in names.items() if each != framework}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DEVSHIM_", "POT_", "TENSORLY_"))}
    own = suite_plugin.OWN_NAMES["tensorly"][framework]
    return {
        **kept,
        **others,
        "PYTHONPATH": os.pathsep.join(path),
        "TENSORLY_BACKEND": own,
        "JAX_ENABLE_X64": "1",  # both projects compute in float64
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "MPLBACKEND": "agg",
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"), "1"),
    }


def outcomes_of(folder: Path, project: str, framework: str, mode: str) -> Path:
    """Return the file of the outcomes of one run."""
    return folder / "outcomes" / f"{project}-{framework}-{mode}.jsonl"


if __name__ == "__main__":
    sys.exit(main())
