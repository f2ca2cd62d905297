"""A job of two processes, each with one GPU: ``jax.distributed.initialize``, global arrays, and collectives."""

import functools
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec


def train(mesh, rank):
    """Fit a line to rows of which each process has half."""
    by_row, everywhere = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    x = np.linspace(rank, rank + 0.75, 4, dtype=np.float32).reshape(4, 1)
    inputs, labels = (jax.make_array_from_process_local_data(by_row, each) for each in (x, 3 * x - 1))
    weights = jax.device_put((np.zeros(1, np.float32), np.float32(0)), everywhere)

    @jax.jit
    def step(weights, inputs, labels):
        def loss(w):
            return ((inputs @ w[0] + w[1] - labels[:, 0]) ** 2).mean()

        return jax.tree.map(lambda w, g: w - 0.3 * g, weights, jax.grad(loss)(weights))

    for _ in range(200):
        weights = step(weights, inputs, labels)
    return [round(float(w.sum()), 2) for w in weights]


def work(rank, port, how):
    chosen = {"local_device_ids": rank} if how == "chosen" else {}
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank, **chosen)
    yield jax.process_index(), jax.process_count(), jax.device_count(), jax.local_device_count(), jax.default_backend()
    yield str(jax.devices()), str(jax.local_devices()), str(jax.local_devices(process_index=1 - rank))
    yield [(each.process_index, each.id, each.platform) for each in jax.devices()], jax.device_count("cpu")
    mesh = jax.make_mesh((2,), ("data",))
    cut = NamedSharding(mesh, PartitionSpec("data"))
    part = np.full((1, 2), rank + 1, np.float32)
    whole = jax.make_array_from_process_local_data(cut, part)
    yield str(whole.shape), whole.is_fully_addressable, [str(each.device) for each in whole.addressable_shards]
    yield float(jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))(whole))

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=PartitionSpec("data"), out_specs=PartitionSpec("data"))
    def turn(block):
        return jax.lax.ppermute(block, "data", [(0, 1), (1, 0)]) + 10 * jax.lax.psum(block, "data")

    yield turn(whole).addressable_data(0).tolist()
    yield multihost_utils.process_allgather(np.array([rank])).ravel().tolist()
    yield multihost_utils.broadcast_one_to_all(np.array([rank + 5])).tolist()
    multihost_utils.sync_global_devices("trained")
    yield train(mesh, rank), str(jnp.ones(2).device), jax.local_devices()[0].memory_stats()["bytes_in_use"] > 0
    try:
        jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
    except RuntimeError as error:
        yield str(error).partition(" any")[0]


def start(how, port):
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), str(port), how],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": str(rank)} if how == "visible" else None,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        output, _ = process.communicate()
        print(f"{how}: status {process.returncode}")
        print(*json.loads(output.splitlines()[-1]), sep="\n")


if __name__ == "__main__" and len(sys.argv) == 1:
    first = 20_000 + os.getpid() % 10_000  # below the ports that the system gives to others
    for number, how in enumerate(("visible", "chosen")):
        start(how, first + number)
elif __name__ == "__main__":
    rank, port, how = sys.argv[1:]
    print(json.dumps(list(work(int(rank), int(port), how))))
