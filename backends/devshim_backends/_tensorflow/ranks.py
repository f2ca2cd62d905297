"""Sums over the ranks of a job: TensorFlow's collective operators, as a ring between hosts.

Requirements of this module:

* TensorFlow starts them with its devices. So a program must simulate GPUs and call ``ds.world()`` before the first
  operator.
* The start waits for minutes if a rank never arrives. So the ranks meet first, and exchange the ports of their servers.
* TensorFlow's servers listen on all addresses of the host, and no option changes that: `GrpcServer::Init` of 2.21 binds
  ``0.0.0.0`` regardless of the cluster's addresses, which gRPC turns into ``[::]``, and reads only
  ``TF_GRPC_REUSE_PORT`` from the environment. They have no authentication. So this engine starts only if the program
  requests it.
"""

from __future__ import annotations

import itertools
import socket
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import tensorflow as tf

from devshim.contract.rank_engines import RankEngine, RanksBackend, collective_timeout, engine_address
from devshim.contract.rank_rendezvous import Rendezvous
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
    keeps_nan: ClassVar[bool] = True
    takes_whole: ClassVar[bool] = True
    right: ClassVar[Mapping[str, Sequence[str]]] = dict.fromkeys(
        ("float16", "bfloat16", "float32", "float64", "int32", "int64"), _ALL
    )

    def __init__(self, place: Place, ports: Sequence[int]) -> None:
        hosts = place.addresses or (engine_address(place)[0],) * place.size
        where = [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]
        cluster = tf.train.ClusterSpec({"worker": where})
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            cluster, task_type="worker", task_id=place.rank, rpc_layer="grpc"
        )
        self._strategy: Any = tf.distribute.MultiWorkerMirroredStrategy(resolver)
        self._place, self._numbers = place, itertools.count(1)
        self._host = f"/job:worker/replica:0/task:{place.rank}/device:CPU:0"

    def reduce_flat(self, x: Any, op: Literal["sum", "max", "min"]) -> Any:
        with tf.device(self._host):
            total = tf.raw_ops.CollectiveReduceV2(
                input=x if "CPU:0" in x.device else tf.identity(x),
                group_size=self._place.size,
                group_key=_GROUP,
                instance_key=next(self._numbers),
                ordering_token=[],
                merge_op=_MERGE[op],
                final_op="Id",
                communication_hint="ring",
                timeout_seconds=collective_timeout(self._place),
            )
        if "CPU:0" in x.device:
            return total
        with tf.device(x.device):
            return tf.identity(total)

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

    def start_ranks(self, place: Place, insists: bool = False) -> RankEngine | None:
        with socket.create_server(("", 0)) as free:
            port = free.getsockname()[1]
        rendezvous = Rendezvous(place, None if self.started() else port)  # type: ignore[attr-defined]  # the backend's
        rendezvous.close()
        if None in rendezvous.said:
            msg = "TensorFlow has computed already, and its collective operators must start before"
            raise AlreadyStartedError(msg, "call ds.world() after ds.use and before the first TensorFlow operator")
        return TensorflowRankEngine(place, rendezvous.said)
