"""FSDP, old and new, over two processes: each holds a half of every parameter, and all train as one process would."""

import sys
import tempfile
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import CPUOffload, FullStateDictConfig, FullyShardedDataParallel, StateDictType, fully_shard


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def train(net, batches):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = sum(net(batch).sum() for batch in batches) / len(batches)
        loss.backward()
        optimizer.step()


def new_fsdp(batch):
    net = make().cuda()
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    train(fully_shard(net), [batch])
    weight = net[0].weight
    print_once(weight.device_mesh.device_type, weight.placements, weight.to_local().shape, weight.to_local().device)
    return [each.full_tensor() for each in net.parameters()]


def old_fsdp(batch, **options):
    net = FullyShardedDataParallel(make(), device_id=batch.device, **options)
    train(net, [batch])
    print_once(net.clip_grad_norm_(1.0).device, net.compute_device)
    with FullyShardedDataParallel.state_dict_type(net, StateDictType.FULL_STATE_DICT, FullStateDictConfig()):
        return list(net.state_dict().values())


def from_meta(batch):
    with torch.device("meta"):
        net = nn.Linear(4, 2)
    weight = fully_shard(net).weight
    net.to_empty(device="cuda")
    nn.init.constant_(net.weight, 0.5)
    nn.init.zeros_(net.bias)
    print_once(net.weight is weight, net(torch.ones_like(batch)).detach())


def print_once(*values):
    if dist.get_rank() == 0:
        print(*values)
        sys.stdout.flush()


def main(rank, world, store):
    warnings.simplefilter("ignore")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=store, rank=rank, world_size=world)
    whole = make()
    train(whole, [torch.full((2, 4), each + 1.0) for each in range(world)])
    batch = torch.full((2, 4), rank + 1.0, device="cuda")
    offloaded = old_fsdp(batch, cpu_offload=CPUOffload(offload_params=True))
    for found in (new_fsdp(batch), old_fsdp(batch), old_fsdp(batch, use_orig_params=True), offloaded):
        print_once([torch.allclose(a.cpu(), b, atol=1e-6) for a, b in zip(found, whole.parameters(), strict=True)])
    from_meta(batch)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(main, args=(torch.cuda.device_count(), f"file://{Path(folder) / 'store'}"), nprocs=2)
