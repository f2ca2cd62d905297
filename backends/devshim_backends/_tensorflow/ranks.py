"""Sums over the ranks of a job: TensorFlow's collective operators, as a ring between hosts.

TensorFlow starts them with its devices. So simulated GPUs and ``ds.world()`` come before the first operator.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import tensorflow as tf

from devshim.contract.rank_engines import RankEngine, RanksBackend, engine_address, patience
from devshim.errors import AlreadyStartedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devshim.contract.ranks import Place

_ALL = ("sum", "max", "min")
_MERGE = {"sum": "Add", "max": "Max", "min": "Min"}
_GROUP = 1717  # the number of devshim's group; those of tf.distribute count up from 1


class TensorflowRankEngine(RankEngine):
    """The collective operators of one rank."""

    name: ClassVar[str] = "ring"
    right: ClassVar[Mapping[str, Sequence[str]]] = dict.fromkeys(
        ("float16", "bfloat16", "float32", "float64", "int32", "int64"), _ALL
    )

    def __init__(self, place: Place) -> None:
        address, port = engine_address(place)
        hosts = place.addresses or (address,) * place.size
        cluster = tf.train.ClusterSpec({"worker": [f"{host}:{port + rank}" for rank, host in enumerate(hosts)]})
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            cluster, task_type="worker", task_id=place.rank, rpc_layer="grpc"
        )
        self._strategy: Any = tf.distribute.MultiWorkerMirroredStrategy(resolver)
        self._place, self._numbers = place, itertools.count(1)
        self._host = f"/job:worker/replica:0/task:{place.rank}/device:CPU:0"

    def reduce_flat(self, x: Any, op: Literal["sum", "max", "min"]) -> Any:
        with tf.device(self._host):
            there = tf.raw_ops.CollectiveReduceV2(
                input=x if "CPU:0" in x.device else tf.identity(x),
                group_size=self._place.size,
                group_key=_GROUP,
                instance_key=next(self._numbers),
                ordering_token=[],
                merge_op=_MERGE[op],
                final_op="Id",
                communication_hint="ring",
                timeout_seconds=patience(self._place),
            )
        if "CPU:0" in x.device:
            return there
        with tf.device(x.device):
            return tf.identity(there)

    def max_ints(self, values: Sequence[int]) -> list[int]:
        with tf.device(self._host):
            x = tf.constant(list(values), tf.int32)
        found: list[int] = self.reduce_flat(x, "max").numpy().tolist()
        return found

    def close(self) -> None:
        self._strategy = None


class TensorflowRanks(RanksBackend):
    """Mixin for sums over ranks."""

    ranks_on_request: ClassVar[str] = "its servers listen on all addresses of the host"

    def start_ranks(self, place: Place) -> RankEngine | None:
        try:
            return TensorflowRankEngine(place)
        except RuntimeError as error:
            if "program startup" not in str(error):
                raise
            msg = "TensorFlow has computed already, and its collective operators must start before"
            raise AlreadyStartedError(msg, "call ds.world() before the first TensorFlow operator") from error
