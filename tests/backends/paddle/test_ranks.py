"""Tests of PaddlePaddle's part in sums over ranks, without other processes."""

from __future__ import annotations

from declared_sums import test_the_adapter_declares_what_was_measured as test_the_adapter_declares_what_was_measured
from declared_sums import test_the_record_is_of_this_version_and_code as test_the_record_is_of_this_version_and_code
