"""DistributedDataParallel over two processes with the backend nccl, each with its own card."""

import sys
import tempfile
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def main(rank, world, store):
    warnings.simplefilter("ignore")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=store, rank=rank, world_size=world)
    x = torch.full((3,), rank + 1.0, device="cuda")
    dist.all_reduce(x)
    parts = [torch.zeros(2, device="cuda") for _ in range(world)]
    dist.all_gather(parts, torch.full((2,), float(rank), device="cuda"))
    number = torch.tensor([rank], device="cuda")
    dist.broadcast(number, 1)
    objects = [None] * world
    dist.all_gather_object(objects, (rank, str(x.device)))
    torch.manual_seed(rank)
    net = DistributedDataParallel(torch.nn.Linear(4, 2).cuda(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.ones(2, 4, device="cuda") * rank).sum().backward()
    gradient = net.module.weight.grad.clone()
    optimizer.step()
    weights = [torch.zeros(2, 4, device="cuda") for _ in range(world)]
    dist.all_gather(weights, net.module.weight.data)
    group = dist.new_group([0, 1])
    try:
        dist.all_reduce(torch.ones(1))
    except RuntimeError as error:
        refused = str(error)
    if rank == 0:
        print(dist.get_backend(group), dist.get_backend_config(), refused)
        print(dist.group.WORLD.name(), group.name())
        print(dist.get_backend(), dist.is_nccl_available(), x, parts, number, objects)
        print(gradient, torch.equal(*weights), net.device_ids)
        sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"{store}2", rank=rank, world_size=world)
    if rank == 0:
        print(dist.get_backend(), dist.group.WORLD.name(), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(main, args=(torch.cuda.device_count(), f"file://{Path(folder) / 'store'}"), nprocs=2)
