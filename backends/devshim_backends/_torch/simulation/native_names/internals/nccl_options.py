"""``torch.distributed.ProcessGroupNCCL``, which PyTorch's build for the CPU lacks: the options of NCCL have no effect.

PyTorch and programs test with the class if NCCL serves a group. Gloo does, so there are no instances.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NoReturn

from torch import distributed

from devshim.errors import UnsupportedError
from devshim.simulation.patching import Patches

__all__ = ["install"]


class Config:
    """The settings of a communicator; every name can be set."""

    blocking = 1
    cga_cluster_size = min_ctas = max_ctas = split_share = traffic_class = cta_policy = -(2**31)
    net_name = comm_name = ""


class Options:
    """The options of a group with the backend nccl."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self.config, self.group_name = Config(), ""
        self._timeout = timedelta(minutes=10)
        self.split_from, self.split_color = None, -(2**31)
        self.global_ranks_in_group: list[int] = []

    backend = "nccl"


class ProcessGroupNCCL:
    """NCCL's implementation of a group."""

    Options, NCCLConfig = Options, Config
    NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_EFFICIENCY, NCCL_CTA_POLICY_ZERO = 0, 1, 2

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        msg = "simulated GPUs do not support torch.distributed.ProcessGroupNCCL, because gloo computes the collectives"
        raise UnsupportedError(msg, 'use torch.distributed.init_process_group("nccl")')


ProcessGroupNCCL.__module__ = "torch.distributed.distributed_c10d"  # PyTorch's


def install(patches: Patches) -> None:
    """Add the class where PyTorch has it, if this build lacks it."""
    c10d = distributed.distributed_c10d
    for module in (distributed, c10d):
        if not hasattr(module, "ProcessGroupNCCL"):
            patches.replace(module, "ProcessGroupNCCL", ProcessGroupNCCL)
