"""Attention over two processes: of a sharded tensor, of a sequence that both share, and of sequences of any length."""

import sys
import tempfile
import warnings
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

CLOSE = {torch.float32: 1e-4, torch.float16: 3e-2, torch.float64: 1e-9}


def print_once(*values):
    if dist.get_rank() == 0:
        print(*values, flush=True)


def draw(length, dtype):
    torch.manual_seed(0)
    return [torch.randn(2, 4, length, 8, dtype=torch.float64).to(dtype).cuda() for _ in range(3)]


def is_close(one, other):
    return torch.allclose(one, other, rtol=0, atol=CLOSE[one.dtype])


def of_a_sharded_tensor(mesh, dtype, placement, mask=None, **options):
    drawn = draw(8, dtype)
    plain = [x.clone().requires_grad_() for x in drawn]
    sharded = [distribute_tensor(x, mesh, [placement]).requires_grad_() for x in drawn]
    expected = F.scaled_dot_product_attention(*plain, attn_mask=None if mask is None else mask.to(dtype), **options)
    mask = None if mask is None else distribute_tensor(mask.to(dtype), mesh, [Replicate()])
    found = F.scaled_dot_product_attention(*sharded, attn_mask=mask, **options)
    for out in (expected, found):
        out.square().sum().backward()
    grads = [is_close(x.grad, y.grad.full_tensor()) for x, y in zip(plain, sharded, strict=True)]
    return is_close(expected, found.full_tensor()) and all(grads), found.placements


def of_a_shared_sequence(mesh, dtype):
    """Each process has one half of the sequence, and trains as one process with all of it."""
    drawn, grads = draw(128, dtype), []
    for is_shared in (False, True):
        factor = torch.ones(3, device="cuda", dtype=dtype, requires_grad=True)
        parts = [x.clone() for x in drawn]
        with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 3) if is_shared else nullcontext():
            out = F.scaled_dot_product_attention(*[x * factor[i] for i, x in enumerate(parts)], is_causal=True)
            out.square().mean().backward()
        grads.append(factor.grad)
    dist.all_reduce(grads[1])
    return list(out.shape), is_close(*(each / n for n, each in enumerate(grads, 1)))


def of_jagged_sequences(dtype, **options):
    torch.manual_seed(0)
    parts = [torch.randn(length, 2 * 8).to(dtype) for length in (3, 1, 5)]
    jagged = torch.nested.nested_tensor(parts, device="cuda", layout=torch.jagged, requires_grad=True)
    heads = jagged.unflatten(-1, [2, 8]).transpose(1, 2)
    F.scaled_dot_product_attention(heads, heads, heads, **options).values().square().sum().backward()
    wanted = []
    for part in parts:
        leaf = part.cuda().requires_grad_()
        rows = leaf.unflatten(-1, [2, 8]).transpose(0, 1)[None]
        F.scaled_dot_product_attention(rows, rows, rows, **options).square().sum().backward()
        wanted.append(leaf.grad)
    return is_close(jagged.grad.values(), torch.cat(wanted))


def main(rank, world, store):
    warnings.simplefilter("ignore")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=store, rank=rank, world_size=world)
    mesh = init_device_mesh("cuda", (world,))
    for dtype in (torch.float32, torch.float16):
        for placement in (Shard(0), Shard(1), Replicate()):
            results = [
                of_a_sharded_tensor(mesh, dtype, placement, **options)
                for options in ({}, {"is_causal": True}, {"scale": 0.5, "mask": torch.eye(8, device="cuda")})
            ]
            print_once(dtype, results)
    for kernel in (SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        with sdpa_kernel(kernel):
            print_once(kernel, of_a_sharded_tensor(mesh, torch.float16, Shard(1)))
    for dtype in (torch.float32, torch.float16):
        print_once("shared", of_a_shared_sequence(mesh, dtype))
    for dtype in (torch.float32, torch.float16, torch.float64):
        print_once("jagged", of_jagged_sequences(dtype), of_jagged_sequences(dtype, is_causal=True))
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(main, args=(torch.cuda.device_count(), f"file://{Path(folder) / 'store'}"), nprocs=2)
