"""The tests in accelerate's source distribution; those of launchers, trackers and other accelerators are left out."""

from __future__ import annotations

from own_tests import own_tests

SUITE = "accelerate: its own tests"
TESTED = ("accelerate", "torch")
FILES = (
    *("accelerator", "big_modeling", "data_loader", "grad_sync", "hooks", "kwargs_handlers", "memory_utils"),
    *("modeling_utils", "offload", "optimizer", "scheduler", "state_checkpointing", "utils"),
)

globals().update(own_tests("accelerate", [f"tests/test_{each}.py" for each in FILES]))
