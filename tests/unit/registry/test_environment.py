"""Tests of the environment: the variables that are read, invalid values, and misspelled names of variables."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import devshim as ds
from devshim.registry import environment, environment_values, simulation_request

MISSPELT = {
    "DEVSHIM_SIMULATE_GPU": "DEVSHIM_SIMULATE_GPUS",
    "DEVSHIM_SIMULATED_GPUS": "DEVSHIM_SIMULATE_GPUS",
    "DEVSHIM_GPUS": "DEVSHIM_SIMULATE_GPUS",
    "devshim_simulate_gpus": "DEVSHIM_SIMULATE_GPUS",
    "DEVSIM_SIMULATE_GPUS": "DEVSHIM_SIMULATE_GPUS",
    "DEVSHIM_SIMULATE_MEM": "DEVSHIM_SIMULATE_MEMORY",
    "DEVSHIM_SIMULATE_MEMROY": "DEVSHIM_SIMULATE_MEMORY",
    "DEVSHIM_BACKND": "DEVSHIM_BACKEND",
    "DEVSHIM_BACKENDS": "DEVSHIM_BACKEND",
}


@pytest.mark.parametrize("name", MISSPELT)
def test_a_misspelt_variable_names_the_nearest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "2")
    expected = f"the environment variable {name} has no effect: did you mean {MISSPELT[name]}?"
    assert list(environment.unread()) == [expected]


def test_an_unknown_variable_names_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVSHIM_COLOUR", "1")
    assert list(environment.unread()) == [
        "the environment variable DEVSHIM_COLOUR has no effect: devshim reads DEVSHIM_BACKEND, DEVSHIM_DEVICE, "
        "DEVSHIM_SIMULATE_GPUS, DEVSHIM_SIMULATE_MEMORY, DEVSHIM_SIMULATE_LIKE, "
        "DEVSHIM_SIMULATE_NATIVE_NAMES, DEVSHIM_SIMULATE_ASYNC_COPIES, DEVSHIM_PROGRESS, DEVSHIM_TUTORIAL_CACHE, "
        "DEVSHIM_ENGINE, DEVSHIM_RAY_ADDRESS"
    ]


def test_other_programs_variables_and_right_ones_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "DEVPI_INDEX": "x",
        "DEVELOPER_DIR": "x",
        "DEV": "1",
        "DEVICE_BACKEND": "x",
        "SHIM_BACKEND": "x",
        "DEVSHIM_BACKEND": "numpy",
        "DEVSHIM_SIMULATE_GPUS": "2",
        "DEVSHIM_SIMULATE_MEMORY": "4GiB",
        "DEVSHIM_SIMULATE_LIKE": "mps",
        "DEVSHIM_SIMULATE_NATIVE_NAMES": "1",
        "DEVSHIM_SIMULATE_ASYNC_COPIES": "late",
        "DEVSHIM_PROGRESS": "0",
    }.items():
        monkeypatch.setenv(name, value)
    assert list(environment.unread()) == []
    monkeypatch.delenv("DEVSHIM_SIMULATE_GPUS")
    assert list(environment.unread()) == [], "a program may call ds.simulate with a memory of its own"


def test_the_table_is_what_the_code_reads() -> None:
    """Every variable that a file of devshim reads from the environment is known, and the other way round."""
    read = set()
    for path in Path(ds.__file__).parent.rglob("*.py"):
        if path.name != "environment.py":
            read |= set(
                re.findall(r"environ(?:ment)?(?:\.get\(|\[)\"(DEVSHIM_\w+)\"", path.read_text(encoding="utf-8"))
            )
    assert read == set(environment.KNOWN)


def test_it_is_said_once_and_at_the_users_line(python: Callable[..., str]) -> None:
    python(
        """
        import warnings
        import devshim as ds
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            ds.gpu(1), ds.device("cuda:1")
            assert heard == []
            ds.device_count()
            ds.use("numpy")
            ds.zeros(3)
        assert [str(each.message).partition(":")[0] for each in heard] == [
            "the environment variable DEVSHIM_SIMULATE_GPU has no effect"
        ]
        assert heard[0].filename == "<string>" and heard[0].lineno == 8, (heard[0].filename, heard[0].lineno)
        assert heard[0].category is UserWarning
        """,
        DEVSHIM_SIMULATE_GPU="2",
    )


def test_a_misspelt_backend_is_said_before_none_is_found(python: Callable[..., str]) -> None:
    output = python("import devshim as ds; ds.zeros(1); raise SystemExit(1)", fails=True, DEVSHIM_BACKND="numpy")
    assert "did you mean DEVSHIM_BACKEND?" in output


@pytest.mark.parametrize("value", ["two", "-1", "1025", "1.5", "\u0662", "1_0", "+2", "0x2", "\uff12", "9" * 5000])
def test_a_count_that_is_none(value: str, python: Callable[..., str]) -> None:
    output = python("import devshim as ds; ds.device_count()", fails=True, DEVSHIM_SIMULATE_GPUS=value)
    assert "ArgumentError: DEVSHIM_SIMULATE_GPUS is " in output
    assert output.rstrip().endswith("and it must be 0 to 1024\n\nHint: set DEVSHIM_SIMULATE_GPUS=2")
    with pytest.raises(ds.ArgumentError, match="it must be 0 to 1024"):
        ds.simulate(value)  # type: ignore[arg-type]


def test_a_count_in_blanks_counts(python: Callable[..., str]) -> None:
    python("import devshim as ds; assert ds.device_count() == 2", DEVSHIM_SIMULATE_GPUS=" 2 ")


JUNK = [
    *("junk", "4XB", "nan", "inf", "-1GiB", "+1GiB", "0", "0GiB", "1e999GiB", "99999999999999999999TiB", "1e30"),
    *("\u0664GiB", "\uff14GiB", "4\u00a0GiB", "\u00bdGiB", "_4GiB", "4__0GiB", "4_GiB", "1.2.3GiB", "e", ".", "0x10"),
    *("4GiB4", "GiB4", "4 Gi B", "1" * 41, "2097153TiB"),
]


@pytest.mark.parametrize("value", JUNK)
def test_an_amount_of_memory_that_is_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error if GPUs are simulated, and a warning if it has no effect."""
    with pytest.raises(ds.ArgumentError, match="positive number of bytes or text with a unit"):
        ds.simulate(1, value)
    with monkeypatch.context() as patch:
        patch.setenv("DEVSHIM_SIMULATE_MEMORY", value)
        (output,) = environment.unread()
        assert output.startswith("DEVSHIM_SIMULATE_MEMORY is ")
        assert output.endswith("it has no effect while DEVSHIM_SIMULATE_GPUS is not set")
        patch.setenv("DEVSHIM_SIMULATE_GPUS", "2")
        assert list(environment.unread()) == []
        patch.setattr(simulation_request, "asked", None)
        with pytest.raises(ds.ArgumentError, match="DEVSHIM_SIMULATE_MEMORY is "):
            simulation_request.simulated_gpus()


@pytest.mark.parametrize(
    ("value", "size"),
    [("9007199254740993", 9007199254740993), ("1048576TiB", 2**60), ("4_000_000", 4_000_000), ("0.5KiB", 512)],
)
def test_amounts_are_exact(value: str, size: int) -> None:
    with ds.simulate(1, value) as handle:
        assert handle.memory == size


def test_the_limit_is_named() -> None:
    for value in (2**60 + 1, "2097153TiB"):
        with pytest.raises(ds.ArgumentError, match="of at most 1,152,921,504,606,846,976 bytes"):
            ds.simulate(1, value)


def test_nothing_of_this_is_looked_at_by_the_import(python: Callable[..., str]) -> None:
    python(
        """
        import warnings
        warnings.simplefilter("error")
        import devshim as ds
        ds.gpu(1), str(ds.cpu())
        """,
        DEVSHIM_SIMULATE_GPU="2",
        DEVSHIM_SIMULATE_GPUS="two",
    )


def test_the_documentation_lists_them() -> None:
    for folder in Path(__file__).parents:
        if (folder / "docs" / "contract.md").is_file():
            text = (folder / "docs" / "contract.md").read_text(encoding="utf-8")
            assert all(f"`{name}`" in text for name in environment.KNOWN)
            return
    pytest.skip("the documentation is not beside the tests")


def test_their_page_lists_these_and_no_others() -> None:
    for folder in Path(__file__).parents:
        if (folder / "docs" / "contract.md").is_file():
            text = (folder / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
            assert re.findall(r"^\| `(DEVSHIM_\w+)` \|", text, re.MULTILINE) == list(environment.KNOWN)
            return
    pytest.skip("the documentation is not beside the tests")


def test_no_variable_of_the_tests_is_unread() -> None:
    assert [name for name in os.environ if name.startswith("DEVSHIM_") and name not in environment.KNOWN] == []


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("DEVSHIM_BACKEND", "numpy", None),
        ("DEVSHIM_BACKEND", " NumPy ", None),
        ("DEVSHIM_BACKEND", "nunpy", "nunpy"),
        ("DEVSHIM_SIMULATE_GPUS", "2", None),
        ("DEVSHIM_SIMULATE_GPUS", "two", "'two'"),
        ("DEVSHIM_SIMULATE_GPUS", "4GiB", "'4GiB'"),
        ("DEVSHIM_SIMULATE_MEMORY", "4GiB", None),
        ("DEVSHIM_SIMULATE_MEMORY", "junk", "'junk'"),
        ("DEVSHIM_SIMULATE_LIKE", "mps", None),
        ("DEVSHIM_SIMULATE_LIKE", "apple", "'apple'"),
        ("DEVSHIM_SIMULATE_NATIVE_NAMES", "1", None),
        ("DEVSHIM_SIMULATE_NATIVE_NAMES", "yes", "'yes'"),
        ("DEVSHIM_SIMULATE_ASYNC_COPIES", "late", None),
        ("DEVSHIM_SIMULATE_ASYNC_COPIES", "never", "'never'"),
        ("DEVSHIM_PROGRESS", "0", None),
        ("DEVSHIM_TUTORIAL_CACHE", "/any/folder", None),
        ("DEVSHIM_PROGRESS", "no", "'no'"),
    ],
)
def test_what_is_wrong_with_a_value_is_one_sentence(name: str, value: str, problem: str | None) -> None:
    reported = environment_values.problem_of(name, value)
    if problem is None:
        assert reported is None
    else:
        assert reported is not None
        assert problem in reported
        assert "Hint" not in reported


# ---------------------------------------------------------------------- the default device
def test_the_environment_chooses_the_default_device(monkeypatch: pytest.MonkeyPatch) -> None:
    ds.simulate(2)
    monkeypatch.setenv("DEVSHIM_DEVICE", "cuda:1")

    def default() -> ds.Device:
        return ds.device_of(ds.zeros(1))

    assert default() is ds.gpu(1)
    assert ds.device_of(ds.zeros(1, device="cpu")) is ds.cpu()
    assert ds.device_of(ds.random.uniform(size=2)) is ds.gpu(1)
    with ds.on("cpu"):
        assert default() is ds.cpu()
    with ds.gpu(0):
        assert default() is ds.gpu(0)
    assert default() is ds.gpu(1)
    found: list[ds.Device] = []

    def body() -> None:
        found.append(default())
        ds.set_device("cpu")
        found.append(default())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert found == [ds.gpu(1), ds.cpu()]
    for text, device in (("", "cpu"), (" ", "cpu"), (" gpu:1\t", "gpu:1")):
        monkeypatch.setenv("DEVSHIM_DEVICE", text)
        assert default() is ds.device(device)


def test_a_default_device_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVSHIM_DEVICE", "gup:1")
    with pytest.raises(ds.DeviceSpecError, match=r"DEVSHIM_DEVICE names no device: .*gup:1"):
        ds.zeros(1)
    assert ds.device_of(ds.zeros(1, device="cpu")) is ds.cpu(), "it is read when it is needed"
    assert environment_values.problem_of("DEVSHIM_DEVICE", "gup:1")
    for text in ("gpu:1", " gpu:1 "):
        assert environment_values.problem_of("DEVSHIM_DEVICE", text) is None


def test_a_default_device_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    ds.simulate(2)
    monkeypatch.setenv("DEVSHIM_DEVICE", "gpu:7")
    for call in (lambda: ds.zeros(1), lambda: ds.from_numpy(np.ones(2))):
        with pytest.raises(
            ds.DeviceNotFoundError, match="DEVSHIM_DEVICE is 'gpu:7', but gpu:7 was asked for"
        ) as caught:
            call()
        assert "unset DEVSHIM_DEVICE" in caught.value.hint
    with pytest.raises(ds.DeviceNotFoundError) as named:
        ds.zeros(1, device="gpu:8")
    assert "DEVSHIM_DEVICE" not in str(named.value)


def test_children_inherit_the_default_device(python: Callable[..., str]) -> None:
    assert python(
        """
        import multiprocessing, sys
        import devshim as ds
        ds.use("numpy")
        ds.simulate(2)
        def child():
            print(ds.device_of(ds.zeros(1)), flush=True)
        child()
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        """,
        DEVSHIM_DEVICE="gpu:1",
    ).split() == ["gpu:1", "gpu:1"]
