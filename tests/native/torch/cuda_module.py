"""Ask torch.cuda: the current card, names, memory, seeds, streams, events, and what is missing."""

import torch

print(torch.cuda.is_available(), torch.cuda.is_initialized(), torch.backends.cuda.is_built(), bool(torch.version.cuda))
print(torch.cuda.current_device(), torch.cuda.get_device_name(1), torch.cuda.get_device_capability("cuda:1"))
print(torch.cuda.get_device_properties(0).total_memory == torch.cuda.mem_get_info(0)[1], torch.cuda.is_bf16_supported())
torch.cuda.set_device(1)
print(torch.cuda.current_device(), torch.ones(1, device="cuda").device, torch.ones(1).cuda().device)
print(torch.tensor([1.0], device="cuda"), torch.ones(1, device=torch.device("cuda")).device)
with torch.cuda.device(0):
    print(torch.cuda.current_device(), torch.empty(1, device="cuda").device)
print(torch.cuda.current_device())
torch.cuda.set_device("cuda:0")

before = torch.cuda.memory_allocated(1)
x = torch.ones(256, 1024, device="cuda:1")
print(
    torch.cuda.memory_allocated(1) - before,
    torch.cuda.memory_allocated(0),
    torch.cuda.max_memory_allocated(1) >= 1 << 20,
)
del x
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats(1)
print(torch.cuda.memory_allocated(1) == before == torch.cuda.max_memory_allocated(1))
print(torch.cuda.memory_stats(1)["allocated_bytes.all.current"] == before, "CUDA" in torch.cuda.memory_summary(1))

torch.cuda.manual_seed_all(7)
a = torch.rand(3, device="cuda:0")
torch.cuda.manual_seed_all(7)
print(torch.equal(a, torch.rand(3, device="cuda:0")), torch.cuda.initial_seed())
generator = torch.Generator(device="cuda:1").manual_seed(7)
print(generator.device, torch.randn(2, generator=generator, device="cuda:1").device)
print(torch.get_device_module() is torch.cuda)
state = torch.cuda.get_rng_state(1)
b = torch.rand(3, device="cuda:1")
torch.cuda.set_rng_state(state, 1)
print(torch.equal(b, torch.rand(3, device="cuda:1")))

stream, start, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
with torch.cuda.stream(stream):
    start.record()
    y = torch.ones(10, device="cuda") * 2
    end.record()
    print(torch.cuda.current_stream() == stream, stream == torch.cuda.default_stream())
y.record_stream(torch.cuda.current_stream())
torch.cuda.current_stream().wait_stream(stream)
torch.cuda.synchronize()
print(start.elapsed_time(end) >= 0, end.query(), torch.cuda.current_stream() == torch.cuda.default_stream())
print(isinstance(stream, torch.cuda.Stream), isinstance(start, torch.cuda.Event), stream.device)
with torch.cuda.stream(torch.cuda.Stream(priority=-1)):
    print(torch.cuda.current_stream().priority, torch.cuda.Stream().priority)
torch.cuda.nvtx.range_push("step")
torch.cuda.nvtx.range_pop()
print(
    str(torch.Stream("cuda:1")).rpartition(",")[0],
    str(torch.Event("cuda")).split(",")[0],
    str(torch.Generator("cuda:1")).split(" at ")[0],
)
with torch.autograd.profiler.emit_nvtx() as marks:
    print(torch.ones(1, device="cuda") + 1, marks is not None)
print(torch.profiler.ProfilerActivity.CUDA in torch.profiler.supported_activities())

torch.set_default_device("cuda")
print(torch.ones(2), torch.tensor(3.0), torch.nn.Linear(1, 1).weight.device, torch.get_default_device())
torch.set_default_device(None)
with torch.device("cuda:1"):
    print(torch.arange(3))
print(torch.ones(1).device)

for line in (
    'torch.ones(2, device="cuda:7")',
    "torch.ones(2).cuda(7)",
    "torch.cuda.set_device(7)",
    "torch.cuda.get_device_properties(7)",
    "torch.cuda.CUDAGraph()",
    'torch.ones(2, device="cuda").__cuda_array_interface__',
    "torch.ones(2).cuda(1) + torch.ones(2)",
):
    try:
        print(line, "->", eval(line))
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        print(line, "->", type(error).__name__, str(error).split("\n")[0].split(", which")[0])
