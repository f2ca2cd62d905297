"""A simulated host for tests whose jobs need no separate Ray: starting Ray takes as long as the job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devshim.world.simulated_hosts import SimulatedHosts

__all__ = ["host"]


@pytest.fixture(scope="module")
def host() -> Iterator[SimulatedHosts]:
    """Start one host without GPUs for all tests of a file."""
    cluster = SimulatedHosts(hosts=1, cards=0)
    yield cluster
    cluster.close()
