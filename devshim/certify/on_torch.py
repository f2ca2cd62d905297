"""Claims about PyTorch: streams, pinned memory, CUDA graphs, its own errors, optimizers, the guard."""

from __future__ import annotations

import warnings
from typing import Any

import devshim as ds
from devshim.certify.claims import Claims, Setting, Skip, expect, require_refusal

__all__ = ["CLAIMS"]

CLAIMS = Claims("torch")


def _busy(milliseconds: int = 60) -> None:
    """Keep the current stream busy."""
    ds.framework().cuda._sleep(int(milliseconds * 1.5e6))  # at about 1.5 GHz


@CLAIMS.add("float8, bfloat16, complex32, views, channels-last and conjugated tensors keep bits, dtype and strides.")
def kinds(at: Setting) -> None:
    """Copy tensors that NumPy cannot represent."""
    torch = ds.framework()
    samples = [torch.arange(24).reshape(2, 3, 4).to(dtype) for dtype in (torch.bfloat16, torch.float8_e4m3fn)]
    samples += [torch.ones(3, dtype=torch.complex64).mul(1j).conj(), torch.arange(24.0).reshape(4, 6)[:, ::2].t()]
    samples.append(torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last))
    for x in samples:
        y = ds.place(x, at.last)
        expect(ds.device_of(y) is at.last and y.dtype is x.dtype, f"{x.dtype}: {y.dtype} on {ds.device_of(y)}")
        expect(at.simulated or y.stride() == x.to(at.last.native()).stride(), f"{x.dtype}: strides {y.stride()}")
        expect(torch.equal(_bytes(ds.place(y, "cpu")), _bytes(x)), f"{x.dtype} {tuple(x.shape)}: other values")


def _bytes(x: Any) -> Any:
    return x.resolve_conj().contiguous().reshape(-1).view(ds.framework().uint8)


@CLAIMS.add("Gradients flow through `place` and `copy`; a copy of a view has its own memory.")
def gradients(at: Setting) -> None:
    """Copy to the GPU, on the GPU, and back."""
    torch = ds.framework()
    x = torch.nn.Parameter(torch.ones(3))
    (ds.copy(ds.place(x, at.first), at.last) * 2).sum().backward()
    expect(x.grad is not None and x.grad.tolist() == [2, 2, 2] and x.grad.device.type == "cpu", f"it is {x.grad}")
    a = ds.ones(4, device=at.first)
    ds.copy(a[1:], at.first).zero_()
    expect(ds.to_numpy(a).tolist() == [1, 1, 1, 1], "the copy shares memory with its source")


@CLAIMS.add("The result of `place` can be read immediately on any other stream.", real=True)
def any_stream(at: Setting) -> None:
    """Read a small tensor, a large one and a list on a side stream while the main one is busy."""
    torch = ds.framework()
    side = torch.cuda.Stream()
    small = torch.full((1024,), 7.0)
    for source in ([small], [torch.full((1 << 24,), 7.0)], [small.clone() for _ in range(500)]):
        for _ in range(3):
            _busy()
            placed = ds.place(source, at.first)
            with torch.cuda.stream(side):
                seen = [t.sum() / t.numel() for t in placed]
            side.synchronize()
            expect(all(float(each) == 7 for each in seen), f"{len(source)} tensors: a side stream saw other values")


@CLAIMS.add(
    "With non_blocking=True the source may be overwritten immediately, and pinned buffers are not reused early.",
    real=True,
)
def overwritten(at: Setting) -> None:
    """Change the sources while the copies wait behind other work."""
    torch = ds.framework()
    small, large, got = [torch.zeros(1024) for _ in range(500)], torch.zeros(1 << 24), []
    for _ in range(6):
        _busy(30)
        got.append(ds.place([*small, large], at.first, non_blocking=True))
        for x in (*small, large):
            x.add_(1)
    ds.synchronize(at.first)
    for turn, placed in enumerate(got):
        wrong = [t for t in (*placed[::37], placed[-1]) if not float(t.amin()) == float(t.amax()) == turn]
        expect(not wrong, f"round {turn}: {len(wrong)} tensors hold values of another round")


@CLAIMS.add("A copy to the host is complete when the call returns, even with non_blocking=True.", real=True)
def to_host(at: Setting) -> None:
    """Read a tensor on a busy stream."""
    torch = ds.framework()
    calls = {
        "to_numpy": ds.to_numpy,
        "place": lambda t: ds.place(t, "cpu", non_blocking=True),
        "copy": lambda t: ds.copy(t, "cpu"),
        "place of a list": lambda t: ds.place([t + i for i in range(9)], "cpu")[0],
    }
    for size in (1024, 1 << 24):
        for name, call in calls.items():
            x = torch.zeros(size, device=at.first.native())
            _busy()
            found = call(x + 3)  # type: ignore[no-untyped-call]
            expect(float(found.min()) == 3, f"{name} of {size} numbers: {float(found.min())}")


@CLAIMS.add(
    "On a side stream tensors are made on that stream, and are not reused under a kernel that reads them.", real=True
)
def side_stream(at: Setting) -> None:
    """Place, compute and release on a side stream while the main one allocates."""
    torch = ds.framework()
    side, source = torch.cuda.Stream(), [torch.full((1024,), float(i)) for i in range(300)]
    for turn in range(10):
        with torch.cuda.stream(side):
            _busy(5)
            placed = ds.place(source, at.first, non_blocking=True)
            doubled = [y * 2 for y in placed]
            del placed
        other = [torch.full((1024,), -1.0, device=at.first.native()) for _ in range(300)]
        side.synchronize()
        expect(all(float(t[5]) == 2 * i for i, t in enumerate(doubled)), f"round {turn}: other values")
        del other


@CLAIMS.add("A MetricLog reads values that were appended on another stream after they were computed.", real=True)
def metric_streams(at: Setting) -> None:
    """Append on a busy side stream, flush on the main one."""
    torch = ds.framework()
    side = torch.cuda.Stream()
    for turn in range(1, 5):
        log = ds.MetricLog(at.first)
        with torch.cuda.stream(side):
            _busy(100)
            for i in range(4):
                log.append(torch.full((), float(turn * i + 1), device=at.first.native()))
        found = log.flush().tolist()
        side.synchronize()
        expect(found == [turn * i + 1 for i in range(4)], f"round {turn}: {found}")


@CLAIMS.add("`except torch.OutOfMemoryError` catches what devshim raises on a full card.")
def own_error(at: Setting) -> None:
    """Allocate twice the GPU's memory."""
    total = ds.memory(at.first).total or 1 << 40
    require_refusal(ds.framework().OutOfMemoryError, lambda: ds.zeros(total // 2, dtype="float32", device=at.first))


@CLAIMS.add("Pinned memory counts as host memory, and is placed with the same values.", real=True)
def pinned(at: Setting) -> None:
    """Place a pinned tensor."""
    torch = ds.framework()
    x = torch.arange(1 << 16, dtype=torch.float32).pin_memory()
    expect(ds.device_of(x) is ds.cpu() and ds.place(x, "cpu") is x, f"it is on {ds.device_of(x)}")
    expect(torch.equal(ds.place(x, at.first).cpu(), x), "other values")


@CLAIMS.add("`torch.device('cuda')` is PyTorch's current card, the text 'cuda' is `gpu:0`.", real=True)
def current_name(at: Setting) -> None:
    """Name the GPU without an index."""
    torch = ds.framework()
    with torch.cuda.device(at.last.index):
        expect(ds.device(torch.device("cuda")) is at.last, f"{ds.device(torch.device('cuda'))}, not {at.last}")
        expect(ds.device("cuda") is at.first, f"'cuda' is {ds.device('cuda')}")


@CLAIMS.add("`place`, `copy`, `run` and creation can be captured in a CUDA graph and replayed.", real=True)
def graphs(at: Setting) -> None:
    """Capture and replay with another input."""
    torch = ds.framework()
    x, graph = torch.ones(4, device=at.first.native()), torch.cuda.CUDAGraph()

    def step() -> Any:
        same = ds.place(x, at.first)
        return ds.run(lambda t: t * 2 + ds.copy(t, at.first) + ds.zeros(4, device=at.first), same)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = step()
    x.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    expect(y.tolist() == [9] * 4, f"replayed: {y.tolist()}")


@CLAIMS.add("torch.compile(fullgraph=True) compiles a function with `place`, `run` and `on`.", real=True)
def compiled(at: Setting) -> None:
    """Compile and call."""
    if at.quick:
        msg = "takes a minute: left out by --quick"
        raise Skip(msg)
    torch = ds.framework()

    def function(x: Any) -> Any:
        with ds.on(ds.device_of(x)):
            one = torch.ones(3)
        return ds.run(torch.add, ds.place(x, "gpu:0") * 2, one)

    found = torch.compile(function, fullgraph=True)(torch.ones(3, device="cuda:0"))
    expect(found.tolist() == [3, 3, 3], f"it returned {found.tolist()}")


@CLAIMS.add("Capturable and fused Adam that go to the host and back end with the bits of those that stayed.", real=True)
def optimizers(at: Setting) -> None:
    """Train on the GPU, with a move to the host and back, and without."""
    for options in ({"capturable": True}, {"fused": True}, {"foreach": True}):
        stayed, moved = (_adam(at, visit, **options) for visit in (False, True))
        expect(ds.framework().equal(stayed, moved), f"{options}: the weights differ")


def _adam(at: Setting, visit: bool, **options: bool) -> Any:
    torch = ds.framework()
    torch.manual_seed(0)
    model = ds.place(torch.nn.Linear(64, 64), at.last)
    optimizer, x = torch.optim.Adam(model.parameters(), **options), ds.place(torch.randn(32, 64), at.last)
    for turn in range(6):
        if visit and turn == 3:
            ds.place([model, optimizer], "cpu")
            ds.place([model, optimizer], at.last)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model.weight.detach()


@CLAIMS.add("An LSTM on the GPU runs without cuDNN's warning of scattered weights.", real=True)
def recurrent(at: Setting) -> None:
    """Move an LSTM to the GPU, back, and to the GPU again."""
    torch = ds.framework()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*RNN module weights.*")
        lstm = ds.place(ds.place(ds.place(torch.nn.LSTM(16, 16, 2), at.first), "cpu"), at.last)
        lstm(torch.randn(5, 3, 16, device=at.last.native()))[0].sum().backward()


@CLAIMS.add("The guard passes waiting, explicit transfers and a training step.")
def guard_passes(at: Setting) -> None:
    """Make copies that are not implicit transfers under a guard."""
    torch = ds.framework()
    model, log = ds.place(torch.nn.Linear(4, 4), at.last), ds.MetricLog(at.last)
    optimizer, x = torch.optim.Adam(model.parameters()), ds.ones((2, 4), dtype="float32", device=at.last)
    with ds.guard("error"):
        ds.place([torch.ones(9) for _ in range(99)], at.last)
        model(x).sum().backward()
        optimizer.step()
        log.append(x.sum())
        log.flush()
        ds.synchronize()
        x[0] = 3.0
        if not at.simulated:
            torch.cuda.current_stream().synchronize()


@CLAIMS.add("The guard refuses `item`, `nonzero`, masks and `tolist`, and names only the card concerned.")
def guard_refuses(at: Setting) -> None:
    """Read implicitly on a GPU that is not the current one."""
    x = ds.ones(4, device=at.last)
    for name, read in {
        "item": lambda: x[0].item(),
        "nonzero": lambda: x.nonzero(),
        "mask": lambda: x[x > 0],
        "tolist": lambda: x.tolist(),
    }.items():
        with ds.guard("error"):
            text = require_refusal(ds.TransferError, read)
        # PyTorch's sync debug mode, which detects waiting operators, does not say for which GPU they wait.
        expect(f"from {at.last} to cpu" in text or "from a GPU to cpu" in text, f"{name}: {text}")


@CLAIMS.add("The ledger with synchronize=True measures a copy, not the work before it.", real=True)
def ledger_seconds(at: Setting) -> str:
    """Compare with CUDA events."""
    torch = ds.framework()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    x = ds.ones(1 << 26, dtype="float32", device=at.first)
    ds.copy(x, at.first)  # its memory is in PyTorch's cache after this
    with ds.transfers(synchronize=True) as log:
        _busy(300)
        ds.copy(x, at.first)
    start.record()
    x.clone()
    end.record()
    torch.cuda.synchronize()
    native, found = start.elapsed_time(end) / 1e3, log.records[0].seconds
    expect(native * 0.7 < found < native * 2 + 3e-4, f"{found} s, by CUDA's events {native} s")
    return f"{x.nbytes / found / 1e9:.0f} GB/s on the card"
