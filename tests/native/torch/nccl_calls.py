"""Calls that NCCL computes and gloo does not, and calls that NCCL refuses; two processes with a card each."""

import tempfile
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.multiprocessing as mp
from torch.distributed import ReduceOp


def full(count, value, dtype=torch.float32):
    return torch.full((count,), value, device="cuda").to(dtype)


def lists(rank, show):
    """Lists of unequal sizes: each rank sends (1, 2) numbers to the ranks, or rank + 1 numbers to both."""
    received = [torch.empty(rank + 1, device="cuda") for _ in range(2)]
    sent = [full(1, 10.0 * rank), full(2, 10.0 * rank + 1)]
    dist.all_to_all(received, sent)
    show(received)
    work = dist.all_to_all(received, [each + 1 for each in sent], async_op=True)
    work.wait()
    show(received, work.get_future().value())
    for dtype in (torch.float32, torch.float8_e5m2):
        parts = [torch.empty(1, 1, device="cuda", dtype=dtype), torch.empty(1, 2, device="cuda", dtype=dtype)]
        dist.all_gather(parts, full(rank + 1, rank + 1.0, dtype))
        show(parts)
    for op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX, ReduceOp.PRODUCT):
        result = torch.empty(rank + 1, device="cuda")
        dist.reduce_scatter(result, [full(1, rank + 1.0), full(2, rank + 2.0)], op=op)
        show(result)


def averages(rank, show):
    """Averages of integers, which NCCL rounds towards zero."""
    for first, dtype in ((4, torch.int32), (-4, torch.int64), (1, torch.uint8)):
        x = full(1, first + rank, dtype)
        dist.all_reduce(x, op=ReduceOp.AVG)
        show(x)
    x = full(1, 4 + rank, torch.int32)
    show(functional.all_reduce(x, "avg", dist.group.WORLD) + 0)
    dist.reduce(x, 0, op=ReduceOp.AVG)
    show(x)
    part, whole = torch.empty(1, device="cuda", dtype=torch.int32), full(2, 4 + rank, torch.int32)
    dist.reduce_scatter(part, list(whole.split(1)), op=ReduceOp.AVG)
    show(part)
    dist.reduce_scatter_tensor(part, whole, op=ReduceOp.AVG)
    show(part)
    device, parts = torch.device("cuda", rank), torch.empty(2, device="cuda", dtype=torch.int32)
    with dist._coalescing_manager(device=device):
        for each, add in zip(parts.split(1), (1, -9), strict=True):
            dist.reduce_scatter_tensor(each, whole + add, op=ReduceOp.AVG)
    with dist._coalescing_manager(device=device):
        dist.all_reduce(whole, op=ReduceOp.AVG)
    show(parts, whole)


def scaled_sums(rank, show):
    for factor in (2.0, torch.tensor([3.0], device="cuda")):
        op = dist._make_nccl_premul_sum(factor)
        x, whole, part = full(1, rank + 1.0), full(2, rank + 1.0), torch.empty(1, device="cuda")
        dist.all_reduce(x, op=op)
        dist.reduce_scatter_tensor(part, whole, op=op)
        show(x, whole, part)
        dist.reduce_scatter(part, list(whole.split(1)), op=op)
        dist.reduce(whole, 1, op=op)
        show(part, whole)


def copies(rank, show):
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.complex64):
        x = full(1, rank + 1.0, dtype)
        dist.broadcast(x, 1)
        show(x)


def refused(rank, show):
    def reduce(dtype=torch.int32, op=ReduceOp.SUM):
        dist.all_reduce(full(1, 1, dtype), op=op)

    one, two = full(1, 1), full(2, 1)
    for call in (
        *(lambda op=op: reduce(op=op) for op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)),
        lambda: reduce(op=dist._make_nccl_premul_sum(2.0)),
        lambda: reduce(torch.bool, ReduceOp.AVG),
        *(lambda dtype=dtype: reduce(dtype) for dtype in (torch.int16, torch.float8_e4m3fnuz, torch.float8_e4m3fn)),
        lambda: dist.broadcast(full(1, 1, torch.int16), 0),
        lambda: dist.broadcast(one, 5),
        lambda: dist.reduce(one, 5),
        lambda: dist.gather(one, dst=5),
        lambda: dist.all_gather([one, two], torch.ones(3, device="cuda")),
        lambda: dist.reduce_scatter(torch.ones(3, device="cuda"), [one, two]),
        lambda: dist.all_reduce(torch.eye(2, device="cuda").to_sparse()),
    ):
        try:
            call()
        except (RuntimeError, TypeError, ValueError) as error:
            show(f"{type(error).__name__}: {str(error).splitlines()[-1]}")


def main(rank, world, store):
    warnings.simplefilter("ignore")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=store, rank=rank, world_size=world)
    for part in (lists, averages, scaled_sums, copies, refused):
        shown = []
        part(rank, lambda *values, shown=shown: shown.append(" ".join(map(str, values))))
        for turn in range(world):
            if turn == rank:
                print(f"{part.__name__} on rank {rank}", *shown, sep="\n", flush=True)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(main, args=(2, f"file://{Path(folder) / 'store'}"), nprocs=2)
