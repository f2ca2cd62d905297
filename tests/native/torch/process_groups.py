"""Futures of collectives, and process groups that a device or a mesh creates; two processes with a card each."""

import contextlib
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


def refused(show):
    """NCCL takes the memory of cards: no tensors on the host, and none with gaps, except in lists that it copies."""
    card = torch.ones(2, 3, device="cuda")
    host, turned = torch.ones(2, 3), torch.ones(3, 2, device="cuda").t()
    calls = (
        lambda: dist.all_gather([host, host], card),
        lambda: dist.all_gather([turned, turned], turned),
        lambda: dist.all_reduce(turned),
        lambda: dist.broadcast(turned, 0),
        lambda: dist.all_gather_into_tensor(torch.ones(4, 3), card),
        lambda: dist.reduce_scatter(card, [host, host]),
        lambda: dist.reduce_scatter_tensor(card, torch.ones(4, 3)),
        lambda: dist.all_to_all_single(host, card),
        lambda: dist.all_reduce_coalesced([card, host]),
    )
    show(*(error_of(call) for call in calls), sep="\n")
    dist.all_gather([turned, torch.ones_like(turned)], card)
    dist.all_reduce(torch.ones(1, 2, 3, 3, device="cuda").to(memory_format=torch.channels_last))


def end(ports):
    """End the group of all ranks; the next one meets at another port, since this one's store may end later."""
    dist.barrier()
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = str(ports.pop())


def main(rank, ports):
    warnings.simplefilter("ignore")
    torch.cuda.set_device(rank)
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=str(ports.pop()))
    show = print if rank == 0 else lambda *values, **options: None
    init_device_mesh("cuda", (2,))  # creates the group of all processes
    futures(rank, show)
    end(ports)
    show(error_of(lambda: dist.init_process_group(device_id=torch.device("cuda", 7))))
    dist.init_process_group(device_id=torch.device("cuda", rank))
    groups(rank, show)
    torch.manual_seed(0)
    random_parts(show)
    coalesced(rank, show)
    options(show)
    end(ports)
    dist.init_process_group()
    show(dist.get_backend(), dist.get_backend_config(), dist.group.WORLD.name(), dist.get_backend(dist.new_group()))
    refused(show)
    end(ports)
    dist.init_process_group("cpu:gloo,cuda:nccl")
    dist.all_reduce(torch.ones(1))
    show(dist.get_backend(), dist.get_backend_config(), dist.group.WORLD.name())
    dist.barrier()
    dist.destroy_process_group()


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


if __name__ == "__main__":
    mp.spawn(main, args=(free_ports(4),), nprocs=2)
