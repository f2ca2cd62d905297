"""Tests of public calls that are the first ones of a process, inside a compiled function."""

from __future__ import annotations

from cold_calls import failed_cold_calls


def test_first_calls_in_compiled_functions():
    assert not failed_cold_calls(
        "tensorflow",
        "compiled = tensorflow.function\ntensor = lambda a: tensorflow.constant(a)",
        all_calls=False,
    )
