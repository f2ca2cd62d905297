"""Futures of collectives, and process groups that a device or a mesh creates; two processes with a card each."""

import os
import socket
import warnings

import torch
import torch.distributed as dist
import torch.distributed.tensor as distributed_tensor
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel


def hook(state, bucket):
    scale = torch.full((1,), 0.5, device="cuda")
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0] * scale)


def error_of(call):
    try:
        return call()
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def futures(rank, show):
    x = torch.ones(2, device="cuda")
    tripled = dist.all_reduce(x, async_op=True).get_future().then(lambda done: done.value()[0] * 3).wait()
    work = dist.all_reduce(torch.ones(1, device="cuda"), async_op=True)
    work.wait()
    show(x, tripled, work.result())
    net = DistributedDataParallel(torch.nn.Linear(2, 1).cuda(), device_ids=[rank])
    net.register_comm_hook(None, hook)
    net(torch.full((1, 2), rank + 1.0, device="cuda")).sum().backward()
    show(net.module.weight.grad)


def groups(rank, show):
    mesh = init_device_mesh("cuda", (1, 2), mesh_dim_names=("a", "b"))
    x = torch.ones(1, device="cuda")
    dist.all_reduce(x, group=mesh["b"].get_group())
    show(x, dist.get_backend(), dist.get_backend(mesh["b"].get_group()))
    show(error_of(lambda: dist.all_reduce(torch.ones(1))))
    split = dist.split_group(split_ranks=[[0], [1]])
    dist.all_reduce(x, group=split)
    alone, _ = dist.new_subgroups_by_enumeration([[0], [1]])
    dist.all_reduce(x, group=alone)
    show(x, split.size(), dist.get_backend(split), dist.group.WORLD.bound_device_id)


def random_parts(show):
    mesh = init_device_mesh("cuda", (2,))
    whole = distributed_tensor.rand(4, 2, device_mesh=mesh, placements=[Shard(0)]).full_tensor()
    weight = distribute_tensor(torch.zeros(4, 2), mesh, [Shard(0)])
    torch.nn.init.normal_(weight)
    values = torch.cat([whole, weight.full_tensor()]).flatten().tolist()
    show(len(set(values)), torch.nn.functional.dropout(weight, 0.5).placements, torch.rand_like(weight).device)
    alike = torch.rand(2, device="cuda")
    first = alike.clone()
    dist.broadcast(first, 0)
    show(torch.equal(alike, first))


def coalesced(rank, show):
    """Several calls as one, which NCCL runs together."""
    device = torch.device("cuda", rank)
    sums = [torch.full((2,), rank + 1.0, device="cuda") for _ in range(2)]
    with dist._coalescing_manager(device=device, async_ops=True) as calls:
        for x in sums:
            dist.all_reduce(x)
    calls.wait()
    gathered, parts = torch.zeros(4, device="cuda"), torch.zeros(1, device="cuda")
    with dist._coalescing_manager(device=device):
        dist.all_gather_into_tensor(gathered, sums[0] * rank)
    with dist._coalescing_manager(device=device):
        dist.reduce_scatter_tensor(parts, sums[1] * (rank + 1))
    received = [torch.zeros(1, device="cuda") for _ in range(2)]
    with dist._coalescing_manager(device=device, async_ops=True) as calls:
        dist.isend(parts * (rank + 1), 1 - rank)
        dist.irecv(received[0], 1 - rank)
    calls.wait()
    exchange = [dist.P2POp(dist.isend, parts, 1 - rank), dist.P2POp(dist.irecv, received[1], 1 - rank)]
    for work in dist.batch_isend_irecv(exchange):
        work.wait()
    show(sums, gathered, parts, received)


def options(show):
    chosen = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    chosen.config.min_ctas = 4
    group = dist.new_group(pg_options=chosen)
    dist.distributed_c10d._set_pg_timeout(chosen._timeout, group)
    show(dist.get_backend(group), chosen.is_high_priority_stream, chosen.config.min_ctas)


def main(rank, port):
    warnings.simplefilter("ignore")
    torch.cuda.set_device(rank)
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=str(port))
    show = print if rank == 0 else lambda *values: None
    init_device_mesh("cuda", (2,))  # creates the group of all processes
    futures(rank, show)
    dist.barrier()
    dist.destroy_process_group()
    show(error_of(lambda: dist.init_process_group(device_id=torch.device("cuda", 7))))
    dist.init_process_group(device_id=torch.device("cuda", rank))
    groups(rank, show)
    torch.manual_seed(0)
    random_parts(show)
    coalesced(rank, show)
    options(show)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    mp.spawn(main, args=(port,), nprocs=2)
