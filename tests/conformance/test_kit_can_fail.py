"""The conformance kit can fail: an adapter with one defect at a time is caught by the tests named here.

The framework is a toy, with an adapter that fulfils the contract (``toy/``) and is registered by an entry point like a
third party's. It runs in a separate process, because each defect damages devshim there.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

TOY = Path(__file__).parent / "toy"

CAUGHT_BY: dict[str, tuple[str, ...]] = {
    "place_copies_at_home": (
        "test_place_returns_the_same_object_if_it_is_there",
        "test_a_tree_that_is_there_is_the_same_object",
    ),
    "copy_aliases": ("test_writing_to_a_copy_does_not_change_the_original", "test_copies_of_copies_are_independent"),
    "copy_is_the_same_object": ("test_writing_to_a_copy_does_not_change_the_original", "test_any_shape_is_copied"),
    "copy_drops_the_last_bit": ("test_place_moves_a_tensor", "test_a_copy_has_the_same_bits", "test_place_round_trip"),
    "lands_elsewhere": ("test_place_moves_a_tensor", "test_creation_is_on_the_requested_device"),
    "missing_device_falls_back": (
        "test_a_missing_device_is_refused",
        "test_a_missing_device_is_refused_in_every_spelling",
    ),
    "gradient_is_cut": ("test_the_gradient_flows", "test_the_gradient_flows_through_a_view"),
    "gradient_flag_is_lost_at_home": ("test_the_gradient_flag_is_kept",),
    "dtype_drifts": ("test_round_trip", "test_64_bit_values_survive_a_cast"),
    "bool_becomes_uint8": ("test_round_trip", "test_place_moves_every_dtype"),
    "from_numpy_aliases": ("test_from_numpy_does_not_alias", "test_read_only_memory_is_not_written"),
    "from_numpy_aliases_aligned_memory": ("test_from_numpy_does_not_alias",),
    "from_numpy_forgets_strides": ("test_round_trip",),
    "to_numpy_aliases": ("test_to_numpy_does_not_alias",),
    "to_numpy_is_read_only": ("test_to_numpy_does_not_alias",),
    "on_is_ignored_by_creation": (
        "test_creation_follows_the_scope",
        "test_scopes_nest",
        "test_random_tensors_follow_the_scope",
    ),
    "on_is_ignored_by_the_framework": ("test_the_frameworks_own_creation_follows_the_scope",),
    "on_survives_an_exception": ("test_an_exception_leaves_the_scope", "test_the_frameworks_own_default_is_restored"),
    "on_is_not_nested": ("test_scopes_nest", "test_an_exception_leaves_the_scope"),
    "scope_reaches_other_threads": ("test_the_native_scope_applies_to_its_own_thread",),
    "default_device_reaches_other_threads": ("test_a_scope_applies_to_its_own_thread", "test_two_tasks_at_once"),
    "seed_is_ignored": ("test_one_seed_repeats_random_tensors",),
    "uniform_reaches_its_bound": ("test_uniform_excludes_its_upper_bound",),
    "draws_repeat": ("test_one_seed_repeats_random_tensors",),
    "device_of_lies": ("test_creation_is_on_the_requested_device", "test_place_moves_a_tensor"),
    "mixing_is_not_refused": ("test_the_frameworks_operators_refuse_mixing",),
    "run_does_not_look": ("test_run_refuses_before_it_calls", "test_the_mismatch_text_is_the_same_on_every_framework"),
    "trees_are_always_rebuilt": ("test_a_tree_that_is_there_is_the_same_object",),
    "shared_tensors_are_torn_apart": ("test_a_shared_tensor_moves_once",),
    "simulation_is_hidden": ("test_each_device_is_described",),
    "counting_raises_for_absence": ("test_device_count_of_an_absent_kind_is_zero",),
    "asarray_ignores_the_device": ("test_creation_is_on_the_requested_device", "test_asarray_reads_python_values"),
    "creation_takes_the_first_card": ("test_creation_without_a_device_is_on_the_host",),
    "wide_integers_go_through_floats": ("test_wide_integers_are_exact",),
    "global_state_is_changed": ("test_a_call_does_not_change_global_state",),
    "a_line_is_missing": ("test_explain_shows_a_native_line_for_every_call", "test_every_call_has_a_native_line"),
    "a_gap_is_not_refused": ("test_a_gap_is_refused_with_its_reason",),
    "a_gap_has_no_reason": ("test_gaps_are_declared_properly",),
    "empty_cache_fails_for_absence": ("test_empty_cache_works_without_a_gpu",),
    "native_devices_do_not_come_back": ("test_the_frameworks_own_object_names_the_device",),
    "convert_shares_when_asked_to_copy": ("test_copy_true_is_new_memory",),
    "memory_is_shared_at_any_address": ("test_convert_copies_unaligned_memory",),
    "a_short_cut_gives_another_dtype": ("test_the_fast_path_of_convert_equals_the_slow_path",),
    "a_short_cut_ignores_the_device": ("test_the_fast_path_of_convert_checks_each_tensor",),
    "conversions_are_not_reported": ("test_observers_see_every_conversion",),
    "place_is_ignored_while_compiling": ("test_place",),
}
"""Defect -> the tests of the kit that must fail on it."""


@pytest.fixture(scope="module")
def outcomes(run_kit: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[bool]]:
    """Return the outcomes of each test: (class, test) -> for each parameter set, True if it passed."""
    report = tmp_path_factory.mktemp("report") / "report.xml"
    tests = [f"{TOY / 'on_toy.py'}::Test_{name}::{test}" for name, tests in CAUGHT_BY.items() for test in tests]
    done = run_kit(
        "--devshim-gpus=2",
        "--devshim-stress=0",
        f"--junitxml={report}",
        "--tb=line",
        f"{TOY / 'on_toy.py'}::TestHealthy",
        *tests,
    )
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[tuple[str, str], list[bool]] = {}
    for case in ET.parse(report).iter("testcase"):
        key = case.get("classname", "").rpartition(".")[2], case.get("name", "").partition("[")[0]
        error = case.find("error")
        assert error is None or "teardown" in error.get("message", ""), (key, error.text)
        if case.find("skipped") is None:
            found.setdefault(key, []).append(case.find("failure") is None and error is None)
    return found


def test_the_undamaged_adapter_passes(outcomes: dict[tuple[str, str], list[bool]]) -> None:
    healthy = {test: passed for (cls, test), passed in outcomes.items() if cls == "TestHealthy"}
    assert len(healthy) > 120
    assert [test for test, passed in healthy.items() if not all(passed)] == []


@pytest.mark.parametrize("defect", CAUGHT_BY)
def test_a_defect_is_caught(defect: str, outcomes: dict[tuple[str, str], list[bool]]) -> None:
    for test in CAUGHT_BY[defect]:
        assert not all(outcomes[f"Test_{defect}", test]), f"{test} passes with this defect"


def test_no_defect_is_forgotten() -> None:
    written = (TOY / "on_toy.py").read_text(encoding="utf-8")
    assert sorted(CAUGHT_BY) == sorted(part.partition("(")[0] for part in written.split("@defect\ndef ")[1:])
