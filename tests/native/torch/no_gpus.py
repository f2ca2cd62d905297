"""Run with CUDA_VISIBLE_DEVICES=-1: a build for CUDA shows no GPU, and computes on the CPU."""

import tempfile

import torch
import torch.distributed as dist


def fails(call):
    """Return the first line of the error, or the result."""
    try:
        return call()
    except (RuntimeError, ValueError) as error:
        return f"{isinstance(error, RuntimeError)}: {str(error).splitlines()[0]}"


cuda = torch.cuda
print(cuda.is_available(), cuda.device_count(), cuda.is_initialized())
print(torch.version.cuda is not None, torch.backends.cuda.is_built())
print(torch.accelerator.current_accelerator(), torch.accelerator.is_available(), torch.accelerator.device_count())
for call in (
    lambda: torch.ones(1).cuda(),
    lambda: torch.ones(1).to("cuda:1"),
    lambda: torch.ones(1).pin_memory(),
    lambda: torch.zeros(2, device="cuda"),
    lambda: torch.tensor([1.0], device=0),
    lambda: torch.nn.Linear(2, 2).cuda(),
    lambda: torch.nn.Linear(2, 2, device="cuda"),
    lambda: torch.ones(2).untyped_storage().cuda(),
    lambda: torch.Generator("cuda"),
    lambda: torch.accelerator.set_device_index(0),
    lambda: torch.accelerator.current_device_index(),
    lambda: cuda.set_device(0),
    lambda: cuda.set_device("cuda:1"),
    lambda: cuda.init(),
    lambda: cuda.current_device(),
    lambda: cuda.get_device_name(0),
    lambda: cuda.get_device_properties(0),
    lambda: cuda.get_device_capability(),
    lambda: cuda.synchronize(),
    lambda: cuda.mem_get_info(),
    lambda: cuda.mem_get_info(0),
    lambda: cuda.get_rng_state(),
    lambda: cuda.initial_seed(),
    lambda: cuda.set_per_process_memory_fraction(0.5),
    lambda: cuda.current_stream(),
    lambda: cuda.Event().record(),
    lambda: cuda.device(0).__enter__(),
):
    print(fails(call))
print(cuda.memory_allocated(), cuda.max_memory_allocated(0), cuda.memory_reserved(), dict(cuda.memory_stats()))
print(cuda.manual_seed(1), cuda.manual_seed_all(1), cuda.seed(), cuda.seed_all(), cuda.empty_cache())
print(torch.manual_seed(1).initial_seed(), cuda.get_rng_state_all(), cuda.is_bf16_supported())
print(torch.accelerator.memory_allocated() if hasattr(torch.accelerator, "memory_allocated") else 0)
print(cuda.Event(enable_timing=True), cuda.device(-1).__enter__(), torch.ones(1).is_pinned())
with tempfile.TemporaryDirectory() as folder:
    torch.save(torch.ones(2), f"{folder}/x.pt")
    print(fails(lambda: torch.load(f"{folder}/x.pt", map_location="cuda")))
    print(torch.load(f"{folder}/x.pt"))
    print(fails(lambda: dist.init_process_group("nccl", init_method=f"file://{folder}/s", rank=0, world_size=1)))
device = torch.device("cuda" if cuda.is_available() else "cpu")
net = torch.nn.DataParallel(torch.nn.Linear(2, 1)).to(device)
scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.Adam(net.parameters())
with torch.autocast("cuda"):
    loss = net(torch.ones(1, 2, device=device)).sum()
scaler.scale(loss).backward()
scaler.step(optimizer)
print(loss.device, loss.dtype, scaler.is_enabled(), next(net.parameters()).grad.device)
print(sum(x.item() for x in torch.utils.data.DataLoader(torch.ones(3), pin_memory=True)))
print(cuda.is_initialized())
