"""Tests of `devshim certify` and `devshim doctor` on GPUs that do not exist: claims that need no kernel's values."""

from __future__ import annotations

from certifying import certify_claims, command


def test_claims_about_the_start_and_contexts_are_true(tmp_path):
    found = certify_claims(tmp_path, "torch", "[sc][to][an]*.[a-z]*")
    assert {"start.counting", "start.by_uuid", "start.forking", "contexts.many", "contexts.waiting"} <= set(found)
    assert not {name: result for name, result in found.items() if not result.startswith("PASS")}


def test_claims_about_memory_are_true(tmp_path):
    found = certify_claims(tmp_path, "torch", "memory.*")
    assert len(found) == 4
    assert not {name: result for name, result in found.items() if not result.startswith("PASS")}


def test_rates_are_measured(tmp_path):
    found = certify_claims(tmp_path, "torch", "rates.[npb]*")
    assert {"rates.no_op", "rates.pinned", "rates.pageable", "rates.between"} <= set(found)
    assert all(result.startswith("RATE") for result in found.values()), found


def test_the_doctor_copies_to_each_gpu():
    done = command("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Each framework copied a number to each GPU and back" in done.stdout


def test_the_doctor_names_the_gpus_that_fail():
    done = command("doctor", FAKE_CUDA_MEMORY="10000")
    assert done.returncode == 1
    for card in ("gpu:0", "gpu:1"):
        assert f"PyTorch counts {card}, but copying a number to it fails: {card} is out of memory" in done.stdout
