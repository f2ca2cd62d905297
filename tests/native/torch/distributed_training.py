"""Train over two processes: parameters without a gradient, batch statistics of all ranks, buffers of any shape."""

import contextlib
import tempfile
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten())
        self.heads = nn.ModuleList([nn.Linear(8, 1), nn.Linear(8, 1), nn.Linear(8, 1)])

    def forward(self, x, head):
        return self.heads[head](self.features(x))


def main(rank, world, store):
    warnings.simplefilter("ignore")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=store, rank=rank, world_size=world)
    torch.manual_seed(0)
    net = nn.SyncBatchNorm.convert_sync_batchnorm(Net().cuda())
    net = DistributedDataParallel(net, device_ids=[rank], find_unused_parameters=True)
    batch = torch.arange(world * 16.0).view(world, 1, 4, 4)[rank : rank + 1].cuda()
    for step in range(2):
        with net.no_sync() if step == 0 else contextlib.nullcontext():
            net(batch, head=rank).square().sum().backward()  # each rank uses a head of its own, and none the last
    norm = net.module.features[1]
    if rank == 0:
        mean = norm.running_mean[0]
        print(mean.device, torch.allclose(mean, expected_mean(net.module, world), atol=1e-4))
        print([head.weight.grad is None for head in net.module.heads])
        print(net.module.heads[1].bias.grad.device, torch.empty_like(torch.ones(2, 3).t()).stride())
    part = torch.arange(3.0, device="cuda") + rank
    for shape in ((6,), (2, 3), (1, 6), (3, 2)):
        whole, reduced = torch.empty(shape, device="cuda"), torch.empty(3, 1, device="cuda")
        dist.all_gather_into_tensor(whole, part)
        dist.reduce_scatter_tensor(reduced, whole)
        if rank == 0:
            print(whole.flatten().tolist(), reduced.flatten().tolist(), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def expected_mean(net, world):
    """Return the first channel's running mean that one process computes from the whole batch."""
    mean = torch.zeros(())
    for _ in range(2):
        whole = net.features[0].cpu()(torch.arange(world * 16.0).view(world, 1, 4, 4))
        mean = mean * 0.9 + 0.1 * whole[:, 0].mean()
    return mean.detach().cuda()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(main, args=(2, f"file://{Path(folder) / 'store'}"), nprocs=2)
