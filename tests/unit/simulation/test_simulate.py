"""Tests of `simulate`: requested, counted, labelled and removed GPUs, on all frameworks or on none."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.errors import messages
from devshim.registry import registry, simulation_request
from devshim.registry.simulation_request import uuid
from devshim.runtime import visible_devices
from devshim.simulation import removed_gpus
from devshim.simulation.driver_numbers import driver_number

GIB = 2**30


def test_on_and_off() -> None:
    assert ds.device_count() == 0
    handle = ds.simulate(3)
    assert (handle.gpus, handle.memory, repr(handle)) == (3, None, "<3 simulated GPUs>")
    assert ds.devices() == [ds.cpu(), ds.gpu(0), ds.gpu(1), ds.gpu(2)]
    assert ds.try_all_gpus() == ds.devices("gpu")
    assert ds.describe(2).simulated
    assert "simulated" in ds.describe(2).name
    ds.simulate(1)
    assert ds.device_count("cuda") == 1
    ds.simulate(0)
    assert ds.device_count() == 0
    assert ds.try_all_gpus() == [ds.cpu()]


def test_the_handle_says_what_was_asked_for() -> None:
    faults = [ds.Fault("gpu:0", "copy"), ds.Fault("gpu:0", "vanish", at=9)]
    assert repr(ds.simulate(1, faults=faults[0])) == "<1 simulated GPU with 1 fault>"
    assert repr(ds.simulate(2, "1KiB", faults=faults)) == "<2 simulated GPUs of 1,024 bytes with 2 faults>"


def test_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="devshim")
    with ds.simulate(2, "1KiB"):
        assert caplog.messages == ["NumPy shows 2 simulated GPUs of 1,024 bytes, computed on the CPU"]
    assert caplog.messages[1:] == ["NumPy shows no more simulated GPUs"]
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_the_log_is_written_where_the_environment_asks_too(python: Any) -> None:
    reported = python(
        """
        import logging, sys
        logging.basicConfig(level="INFO", stream=sys.stdout)
        import devshim as ds
        ds.device_count()
        """,
        DEVSHIM_SIMULATE_GPUS="1",
    )
    assert reported == "INFO:devshim:NumPy shows 1 simulated GPU, computed on the CPU\n"


def test_as_a_block() -> None:
    with ds.simulate(2, "1MiB"):
        with ds.simulate(4):
            assert ds.device_count() == 4
            assert ds.memory(0).total is None
        assert ds.device_count() == 2
        assert ds.memory(0).total == 2**20
    assert ds.device_count() == 0
    with pytest.raises(ZeroDivisionError), ds.simulate(2):
        raise ZeroDivisionError
    assert ds.device_count() == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("4GiB", 4 * GIB), ("4gb", 4 * 10**9), ("512 MiB", 512 * 2**20), ("1.5KiB", 1536), ("1_000", 1000)),
        *(("3kb", 3 * 10**3), ("3MB", 3 * 10**6), ("3 Tb", 3 * 10**12), ("3mib", 3 * 2**20), ("3GIB", 3 * GIB)),
        *(("100b", 100), (" 2 TiB ", 2 * 2**40), (4096, 4096), (np.int64(64), 64), ("1e3", 1000)),
    ],
)
def test_memory_sizes(text: Any, size: int) -> None:
    with ds.simulate(1, memory=text) as handle:
        assert handle.memory == ds.memory("gpu").total == ds.describe("gpu").total_memory == size
        assert f"{size:,} bytes" in repr(handle)


def test_a_thousand_gpus() -> None:
    with ds.simulate(1000, memory="1MiB"):
        cards = ds.devices("gpu")
        assert cards == [ds.gpu(i) for i in range(1000)]
        assert {(info.simulated, info.total_memory) for info in map(ds.describe, cards)} == {(True, 2**20)}
        x = ds.ones(3, device=cards[-1])
        assert ds.device_of(ds.place(x, cards[500])) is cards[500]
        assert [ds.memory(card).used for card in (cards[500], cards[999])] == [0, 512]
    assert ds.device_count() == 0


def test_more_gpus_than_a_framework_can_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(registry.load("numpy")), "most_simulated_gpus", 4)
    with ds.simulate(4):
        with pytest.raises(ds.SimulationError, match="NumPy can show 4 simulated GPUs at most, and 5 were requested"):
            ds.simulate(5)
        assert ds.device_count() == 4


def test_64_threads_at_once() -> None:
    """They place, copy and describe at the same time, and every byte is counted and freed."""
    meet = threading.Barrier(64, timeout=30)

    def body(seed: int) -> list[Any]:
        meet.wait()
        kept = []
        for turn in range(20):
            first, second = ds.gpu((seed + turn) % 4), ds.gpu((seed + 3 * turn) % 4)
            x = ds.place(np.full(200, seed, "float64"), first)
            kept = [ds.copy(x, second), ds.place({"x": x}, second)["x"], x]
            assert ds.describe(second).simulated
            assert [ds.device_of(each) for each in kept] == [second, second, first]
            assert all((ds.to_numpy(each) == seed).all() for each in kept)
        return kept[:1]

    with ds.simulate(4, memory="1GiB"):
        with ThreadPoolExecutor(64) as pool:
            kept = list(pool.map(body, range(64)))
        # The last copy of each thread is on GPU (seed + 57) % 4, and 1,600 bytes take 2,048.
        assert [ds.memory(card).used for card in ds.devices("gpu")] == [16 * 2048] * 4
        del kept
        assert [ds.memory(card).used for card in ds.devices("gpu")] == [0] * 4


@pytest.mark.parametrize("gpus", [-1, 1025, 1.0, "two", "", None, True, [2], np.array([2]), "9" * 5000, b"2"])
def test_bad_counts(gpus: Any) -> None:
    with pytest.raises(ds.ArgumentError, match="it must be 0 to 1024"):
        ds.simulate(gpus)
    assert ds.device_count() == 0


@pytest.mark.parametrize(
    "memory",
    [
        "",
        "4 GiBs",
        "GiB",
        "-4GiB",
        "0",
        0,
        -1,
        "nan",
        "inf",
        "1e400",
        True,
        1.5,
        [],
        "4Gi B",
        "1" + "0" * 39 + "GiB",
        "0.1b",
    ],
)
def test_bad_memory(memory: Any) -> None:
    with pytest.raises(ds.ArgumentError, match="positive number of bytes or text with a unit"):
        ds.simulate(1, memory)
    assert ds.device_count() == 0


def test_by_the_environment(python: Any) -> None:
    python(
        """
        import devshim as ds
        assert ds.device_count() == 2
        assert ds.memory("gpu:1").total == 4 * 2**30
        assert ds.describe("gpu:1").simulated
        with ds.simulate(1):
            assert ds.device_count() == 1
        assert ds.device_count() == 2
        ds.simulate(0)
        assert ds.device_count() == 0, "the program has the last word"
        """,
        DEVSHIM_SIMULATE_GPUS="2",
        DEVSHIM_SIMULATE_MEMORY="4GiB",
    )


@pytest.mark.parametrize(("gpus", "memory"), [("two", "1GiB"), ("-1", ""), ("2", "lots")])
def test_nonsense_in_the_environment_is_named(gpus: str, memory: str, python: Any) -> None:
    output = python(
        "import devshim as ds; ds.device_count()",
        fails=True,
        DEVSHIM_SIMULATE_GPUS=gpus,
        DEVSHIM_SIMULATE_MEMORY=memory,
    )
    assert re.search(r"ArgumentError: DEVSHIM_SIMULATE_(GPUS|MEMORY) is '", output)


def test_an_empty_variable_is_none(python: Any) -> None:
    python("import devshim as ds; assert ds.device_count() == 0", DEVSHIM_SIMULATE_GPUS="", DEVSHIM_SIMULATE_MEMORY="x")


def test_not_beside_real_cards(fake: Any) -> None:
    ds.use("fakeframe")
    with pytest.raises(ds.SimulationError, match="Fakeframe sees 2 real GPUs"):
        ds.simulate(2)
    assert not fake.simulated
    assert simulation_request.simulated_gpus() == 0
    fake.simulation_refused = messages.real_gpus_present(fake, 2)  # as for a framework that is imported later
    with pytest.raises(
        ds.DeviceNotFoundError, match=r"sees 2 real GPUs(.|\n)*Hint: .*hide them: set CUDA_VISIBLE_DEVICES"
    ):
        ds.require("gpu:2")
    fake.real = 0
    with ds.simulate(3):
        assert ds.device_count() == 3
    assert ds.device_count() == 0


def test_a_refusal_is_forgotten_when_the_simulation_ends(fake: Any) -> None:
    with ds.simulate(2):  # NumPy is current
        assert fake.simulation_refused.problem == "Fakeframe sees 2 real GPUs, so it cannot simulate others"
        assert fake.simulation_refused.__traceback__ is None  # it would keep this test's variables
        with ds.using("fakeframe"), pytest.raises(ds.DeviceNotFoundError) as caught:
            ds.require("tpu:0")
        assert "real GPUs" not in str(caught.value)
    with ds.using("fakeframe"), pytest.raises(ds.DeviceNotFoundError) as caught:
        ds.require("gpu:5")
    assert caught.value.hint == "use gpu:0 to gpu:1, or ds.try_gpu(5) to fall back to the CPU"


def test_too_late_changes_nothing(fake: Any) -> None:
    ds.use("fakeframe")
    fake.real = 0
    fake.refuses_simulation = messages.simulated_too_late(fake, "it has started", "move ds.simulate(...) to the top")
    with pytest.raises(ds.SimulationError, match="cannot simulate GPUs now: it has started") as caught:
        ds.simulate(2)
    assert "to the top" in str(caught.value.hint)
    with ds.using("numpy"):
        assert ds.device_count() == 0, "all frameworks or none"
    assert simulation_request.simulated_gpus() == 0


def test_a_backend_that_is_not_current_keeps_its_reason(fake: Any) -> None:
    """Work on NumPy's GPUs continues; a request to the other framework gives the reason why it has none."""
    fake.real = 0
    fake.refuses_simulation = messages.simulated_too_late(fake, "it has started", "move it")
    ds.simulate(2)
    assert ds.device_count() == 2
    with ds.using("fakeframe"), pytest.raises(ds.DeviceNotFoundError, match="cannot simulate GPUs now: it has started"):
        ds.zeros(1, device="gpu:0")
    fake.refuses_simulation = None
    ds.simulate(2)
    with ds.using("fakeframe"):
        assert ds.device_count() == 2


def test_when_the_second_refuses_the_first_is_rolled_back(fake: Any, caplog: pytest.LogCaptureFixture) -> None:
    fake.real = 0
    ds.simulate(2)
    ds.use("fakeframe")
    fake.refuses_simulation = messages.simulated_too_late(fake, "N is fixed", "restart")
    with caplog.at_level("INFO", "devshim"), pytest.raises(ds.SimulationError):
        ds.simulate(5)
    assert fake.simulated == 2
    assert caplog.messages == [f"NumPy shows {n} simulated GPUs, computed on the CPU" for n in (5, 2)]
    with ds.using("numpy"):
        assert ds.device_count() == 2
    fake.refuses_simulation = None


def test_a_declared_gap_is_reported_as_such(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gap = type(next(iter(fake.gaps.values())))("planned", "the next issue brings it")
    monkeypatch.setattr(type(fake), "gaps", {"simulate": gap})
    ds.simulate(2)  # NumPy is current
    ds.use("fakeframe")
    with pytest.raises(ds.UnsupportedError, match="the next issue brings it"):
        ds.simulate(3)
    with ds.using("numpy"):
        assert ds.device_count() == 2


def test_loading_later_gets_the_cards_too(python: Any) -> None:
    python("""
        import sys
        import devshim as ds
        ds.simulate(2, memory="1KiB")
        assert "numpy" not in sys.modules
        ds.use("numpy")
        assert ds.device_count() == 2
        try:
            ds.zeros(1000, device=1)
        except ds.OutOfMemoryError as error:
            assert "gpu:1 is out of memory" in error.problem and "1,024 bytes are free" in error.problem, error
        else:
            raise SystemExit("the limit is not kept")
        assert ds.memory(1).used == 0
    """)


def test_what_one_framework_refuses_leaves_all_as_they_were(fake: Any) -> None:
    ds.simulate(2, "1MiB")
    fake.real = 0
    fake.refuses_simulation = ds.SimulationError("it has begun", "simulate earlier")
    ds.use("fakeframe")
    with pytest.raises(ds.SimulationError, match="it has begun"):
        ds.simulate(3, "2MiB")
    ds.use("numpy")
    assert ds.device_count() == 2
    assert ds.memory("gpu:1").total == 2**20
    with pytest.raises(ds.OutOfMemoryError):
        ds.zeros(2**20, device="gpu:1")


def test_removed_gpus_are_forgotten_with_their_last_tensor() -> None:
    backend = registry.load("numpy")
    with ds.simulate(2):
        x = ds.ones(3, device="gpu:1")
    assert backend.simulated_or_removed == 2
    del x
    removed_gpus.forget_unused(backend)
    assert backend.simulated_or_removed == 0


# ---------------------------------------------------------------- GPUs of another platform
def test_gpus_like_a_platform_are_restored_to_cuda() -> None:
    ds.use("numpy")
    with ds.simulate(1, like="mps") as handle:
        assert handle.like == "mps"
        assert repr(handle) == "<1 simulated GPU like 'mps'>"
        assert ds.describe("mps").platform == "mps"
    with ds.simulate(1) as handle:
        assert handle.like == ds.describe("gpu").platform == "cuda"


@pytest.mark.parametrize("like", ["apple", "MPS", "", None, 1, ["mps"]])
def test_unknown_platforms_are_refused(like: Any) -> None:
    ds.use("numpy")
    with pytest.raises(ds.ArgumentError, match="it must be one of 'cuda', 'mps', 'xpu'"):
        ds.simulate(1, like=like)
    assert ds.device_count() == 0


def test_a_mac_has_one_gpu(python: Callable[..., str]) -> None:
    ds.use("numpy")
    with pytest.raises(ds.ArgumentError, match=r"2 GPUs like 'mps' were asked for, .* has 1"):
        ds.simulate(like="mps")
    assert ds.simulate(4, like="xpu").gpus == 4
    failed = python(
        "import devshim as ds; ds.use('numpy'); ds.device_count()",
        fails=True,
        DEVSHIM_SIMULATE_GPUS="2",
        DEVSHIM_SIMULATE_LIKE="mps",
    )
    assert "has 1" in failed


def test_fewer_visible_gpus_keep_their_platform() -> None:
    ds.use("numpy")
    with ds.simulate(3, like="xpu"):
        ds.set_visible_devices([0, 1])
        assert ds.device_count("xpu") == 2
        ds.set_visible_devices(None)


def test_tensors_from_before_keep_their_dtype() -> None:
    """The GPU refuses new float64 tensors, and those from before can be read and moved away."""
    ds.use("numpy")
    with ds.simulate(1):
        x = ds.ones(3, dtype="float64", device="gpu")
        with ds.simulate(1, like="mps"):
            assert ds.to_numpy(x).tolist() == ds.place(x, "cpu").tolist() == [1, 1, 1]
            with pytest.raises(ds.ConversionError):
                x + x
        assert (x + x).dtype == "float64"


@pytest.mark.parametrize("native_names", [1, "cuda", None])
def test_native_names_are_a_bool(native_names: Any) -> None:
    ds.use("numpy")
    with pytest.raises(ds.ArgumentError, match="it must be True or False"):
        ds.simulate(native_names=native_names)
    assert ds.device_count() == 0


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        *[("0", 1), ("2", 1), ("2, 0", 2), ("0,3,1", 1), ("-1", 0), ("none", 0), ("1,1", 0), ("", 3)],
        *[("1,GPU-8f2", 1), (f"{uuid(2)},{uuid(0)}", 2), (uuid(1)[:-1], 0), (f"0,{uuid(0)}", 0), (uuid(3), 0)],
    ],
)
def test_cuda_visible_devices_hides_gpus_with_native_names(
    visible: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the first index that does not exist, as CUDA does it; without native names the variable hides none."""
    ds.use("numpy")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with ds.simulate(3, native_names=True) as simulation:
        assert (ds.device_count(), simulation.gpus) == (count, 3)
        with ds.simulate(3):
            assert ds.device_count() == 3
        assert ds.device_count() == count
    assert ds.device_count() == 0


@pytest.mark.parametrize(("visible", "hidden"), [("-1", "all 2 simulated GPUs"), ("7", "all 2 simulated GPUs")])
def test_the_error_of_a_hidden_gpu_names_the_variable(
    visible: str, hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds.use("numpy")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with ds.simulate(2, native_names=True):
        assert (ds.device_count(), ds.try_gpu(), ds.devices()) == (0, ds.cpu(), [ds.cpu()])
        for use in (lambda: ds.require("gpu"), lambda: ds.ones(1, device=ds.gpu(0))):
            with pytest.raises(ds.DeviceNotFoundError, match=f"CUDA_VISIBLE_DEVICES='{visible}' hides {hidden}"):
                use()
        with pytest.raises(ds.DeviceNotFoundError, match=f"0 are visible: CUDA_VISIBLE_DEVICES='{visible}' hides"):
            ds.set_visible_devices([0])
    with ds.simulate(1), pytest.raises(ds.DeviceNotFoundError, match="devshim simulates 1"):
        ds.require("gpu:1")


@pytest.mark.parametrize(
    ("before", "wanted", "after", "numbers"),
    [
        ("2,0", [0], "2", [2]),
        ("2, 0", [1], "0", [0]),
        ("2,0", [1, 0], "0,2", [0, 2]),
        (f"0,{uuid(2)}", [1], uuid(2), [2]),
        ("", [2, 1], f"{uuid(2)},{uuid(1)}", [2, 1]),
        (None, [1], "1", [1]),
        (None, [], "-1", []),
    ],
)
def test_visible_devices_change_the_variable_of_native_names(
    before: str | None, wanted: list[int], after: str, numbers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They select among the GPUs that the variable shows. An empty one hides real GPUs, which stay hidden."""
    ds.use("numpy")
    monkeypatch.setattr(visible_devices, "_before", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "" if before is None else before)
    if before is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with ds.simulate(3, native_names=True):
        at_first = ds.device_count()
        ds.set_visible_devices(wanted)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == after
        assert ds.device_count() == len(numbers)
        assert [driver_number(index) for index in range(len(numbers))] == numbers
        with pytest.raises(ds.DeviceNotFoundError, match=f"{len(numbers)} (is|are) visible: CUDA_VISIBLE_DEVICES"):
            ds.set_visible_devices([len(numbers)])
        ds.set_visible_devices(None)
        assert (os.environ.get("CUDA_VISIBLE_DEVICES"), ds.device_count()) == (before, at_first)


def test_visible_devices_hide_all_gpus_with_native_names(monkeypatch: pytest.MonkeyPatch) -> None:
    ds.use("numpy")
    monkeypatch.setattr(visible_devices, "_before", None)
    with ds.simulate(2, native_names=True):
        ds.set_visible_devices([])
        with pytest.raises(ds.DeviceNotFoundError, match=r"CUDA_VISIBLE_DEVICES='-1' hides all 2 simulated GPUs"):
            ds.require("gpu")
        ds.set_visible_devices(None)
        assert ds.device_count() == 2


def test_visible_devices_that_fail_leave_the_variable(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(request: object) -> None:
        msg = "no"
        raise ValueError(msg)

    ds.use("numpy")
    with ds.simulate(2, native_names=True):
        monkeypatch.setattr(visible_devices.simulate, "switch", fail)
        with pytest.raises(ValueError, match="no"):
            ds.set_visible_devices([1])
        monkeypatch.undo()
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_no_gpus_have_no_native_names() -> None:
    """Zero GPUs switch simulation off: only GPUs that are hidden leave their names."""
    ds.use("numpy")
    with ds.simulate(0, native_names=True) as simulation:
        assert not simulation.native_names
        assert not simulation_request.is_requested()
        with pytest.raises(ds.DeviceNotFoundError, match="run `devshim doctor` to see why"):
            ds.require("gpu")


def test_native_names_are_those_of_cuda() -> None:
    ds.use("numpy")
    with pytest.raises(ds.ArgumentError, match="like is 'mps'"):
        ds.simulate(1, like="mps", native_names=True)
    with ds.simulate(native_names=True) as simulation:
        assert simulation.native_names
        assert repr(simulation) == "<2 simulated GPUs with native names>"


def test_the_variable_of_native_names_is_1_or_0(python: Callable[..., str]) -> None:
    failed = python(
        "import devshim as ds; ds.use('numpy'); ds.device_count()",
        fails=True,
        DEVSHIM_SIMULATE_GPUS="2",
        DEVSHIM_SIMULATE_NATIVE_NAMES="yes",
    )
    assert "it must be 1 or 0" in failed
