"""Tests that contexts are created only on the used GPUs, and that there are as many calls as in PyTorch itself."""

from __future__ import annotations


def test_counting_starts_nothing(run_on_each):
    run_on_each("""
    assert ds.device_count() == LAST + 1
    assert ds.devices() == [ds.cpu(), *(ds.gpu(i) for i in range(LAST + 1))]
    assert ds.try_gpu() is ds.gpu(0) and len(ds.try_all_gpus()) == LAST + 1
    assert ds.require(CARD) is ds.gpu(LAST)
    assert not torch.cuda.is_initialized()
    with pytest.raises(ds.DeviceNotFoundError):
        ds.place(torch.ones(3), ds.gpu(LAST + 1))
    assert not torch.cuda.is_initialized() and contexts() == []
    """)


def test_placing_creates_a_context_only_on_the_target(run):
    """Pinned buffers are created with their GPU current; PyTorch's current GPU is 0 all the time."""
    for what in (
        "ds.place(torch.ones(3), CARD)",
        "ds.place([torch.full((1024,), float(i)) for i in range(100)], CARD)",
        "ds.place(torch.ones(1 << 25), CARD)",
        "ds.place(torch.ones(1 << 25), CARD, non_blocking=True)",
        "ds.place([model, torch.optim.Adam(model.parameters())], CARD)",
        "ds.from_numpy(torch.ones(3).numpy(), CARD)",
        "ds.zeros(3, device=CARD)",
        "ds.random.uniform(size=3, device=CARD)",
        "ds.asarray([1, 2], device=CARD)",
    ):
        run(f"""
        model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(20)])
        {what}
        assert contexts() == [LAST], contexts()
        assert torch.cuda.current_device() == 0
        """)


def test_queries_and_waiting_create_no_context(run):
    run("""
    ds.synchronize()
    ds.empty_cache()
    ds.memory_policy(0.5)
    assert contexts() == []
    x = ds.place(torch.ones(3), CARD)
    ds.synchronize()
    ds.synchronize("gpu:1")
    ds.empty_cache()
    with ds.guard("error"), ds.transfers():
        ds.place(x, "cpu")
    assert ds.place(x, CARD) is x
    assert ds.describe("gpu:2").total_memory == 8 << 30
    assert ds.memory("gpu:2") == ds.MemoryInfo(total=8 << 30, used=0, free=7 << 30, peak=0)
    ds.Placement.balanced({"a": x, "b": x}, ds.try_all_gpus())
    log = ds.MetricLog()
    log.append(x[0])
    log.flush()
    assert contexts() == [LAST], contexts()
    """)


def test_single_copies_make_the_same_calls_as_pytorch(run_on_each):
    """Single transfers cost the same as PyTorch's own; a tensor that is already there costs nothing."""
    run_on_each("""
    x = torch.arange(1024.)
    y = ds.place(x, CARD)
    assert calls_of(lambda: ds.place(y, CARD)) == {}
    ours = calls_of(lambda: ds.place(x, CARD))
    assert ours == calls_of(lambda: x.to(CUDA)) == {"copy to a card, pageable": 1, "cudaStreamSynchronize": 1}, ours
    assert calls_of(lambda: ds.place(y, "cpu")) == calls_of(lambda: y.cpu())
    assert calls_of(lambda: ds.to_numpy(y)) == calls_of(lambda: y.cpu().numpy())
    assert calls_of(lambda: ds.copy(y, CARD)) == calls_of(lambda: y.to(CUDA, copy=True))
    assert calls_of(lambda: ds.zeros(3, device=CARD)) == calls_of(lambda: torch.zeros(3, device=CUDA))
    """)


def test_drawing_takes_one_kernel(run_on_each):
    """Like PyTorch's own, it stays below the upper bound if rounding cannot exceed it."""
    run_on_each("""
    native = calls_of(lambda: torch.rand(9, device=CUDA))
    assert native == {"kernel": 1, "cudaMalloc": 1}, native
    assert calls_of(lambda: ds.random.uniform(size=9, device=CARD)) == {"kernel": 1}
    assert calls_of(lambda: ds.random.uniform(-1, 1, size=9, device=CARD)) == {"kernel": 1}
    assert calls_of(lambda: ds.random.uniform(-1, 1, size=9, dtype="float16", device=CARD)) == {"kernel": 1}
    assert calls_of(lambda: ds.random.normal(size=9, device=CARD)) == {"kernel": 1}
    """)


def test_many_tensors_are_one_copy_and_one_wait(run_on_each):
    run_on_each("""
    xs = [torch.full((1024,), float(i)) for i in range(1000)]
    ys = ds.place(xs, CARD)
    there = calls_of(lambda: ds.place(xs, CARD))
    copies = {name: n for name, n in there.items() if name.startswith("copy to")}
    assert copies == {"copy to a card, pinned": 1}, there
    assert there["cudaStreamSynchronize"] == 1, there
    back = calls_of(lambda: ds.place(ys, "cpu"))
    copies = {name: n for name, n in back.items() if name.startswith("copy from")}
    assert copies == {"copy from a card, pinned": 1}, back
    assert back["cudaStreamSynchronize"] == 1, back
    """)


def test_large_arrays_go_through_pinned_memory(run_on_each):
    """Pageable memory is copied at half the rate; `place`, `to_numpy` and `from_numpy` behave the same."""
    run_on_each("""
    x = torch.arange(float(1 << 24))
    array = x.numpy()
    y = ds.from_numpy(array, CARD)
    for back in (ds.place(y, "cpu").numpy(), ds.to_numpy(y), ds.convert(y, "numpy", "cpu")):
        assert (back == array).all()
    ways = {"copy to a card, pinned": 4}
    assert calls_of(lambda: ds.place(x, CARD)).items() >= ways.items()
    assert calls_of(lambda: ds.from_numpy(array, CARD)).items() >= ways.items()
    assert calls_of(lambda: ds.asarray(array, device=CARD)).items() >= ways.items()
    assert calls_of(lambda: ds.to_numpy(y)).items() >= {"copy from a card, pinned": 4}.items()
    parameter = torch.nn.Parameter(y)
    assert calls_of(lambda: ds.to_numpy(parameter)).items() >= {"copy from a card, pinned": 4}.items()
    """)


def test_saving_and_loading_many_small_leaves_is_one_copy_and_one_wait(run_on_each):
    run_on_each("""
    import tempfile
    path = tempfile.mkdtemp() + "/saved.safetensors"
    model = ds.place(torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(100)]), CARD)
    parameters = [torch.nn.Parameter(torch.full((3,), float(i), device=CUDA)) for i in range(100)]
    tree = {"a": [x.detach() for x in parameters], "b": parameters, "c": torch.ones(4)}
    for saved in (model, tree):
        out = calls_of(lambda: ds.save(saved, path))
        assert {name: n for name, n in out.items() if "copy from" in name} == {"copy from a card, pinned": 1}, out
        assert out["cudaStreamSynchronize"] == 1, out
        for load in (lambda: ds.load(path, CARD), lambda: ds.load(path, into=saved)):
            calls = calls_of(load)
            copies = {name: n for name, n in calls.items() if "copy to" in name}
            assert copies == {"copy to a card, pinned": 1}, calls
            assert calls["cudaStreamSynchronize"] == 1, calls
    """)


def test_the_driver_knows_which_gpus_are_used(run):
    """The adapter of CuPy asks the driver, because CuPy's runtime does not report contexts."""
    run("""
    from devshim.devices import cuda
    def used():
        return [card for card in range(LAST + 1) if cuda.has_context(card)]
    assert ds.device_count() == 4 and used() == []
    x = ds.place(torch.ones(3), CARD)
    assert used() == [LAST] == contexts()
    """)


def test_large_tensors_in_any_order_and_parameters_go_through_pinned_memory(run_on_each):
    run_on_each("""
    plain = torch.arange(float(1 << 24))
    with_gaps = torch.ones(1 << 12, 1 << 13)[:, 1 : 1 + (1 << 12)]
    for x in (plain.view(1 << 12, -1).t(), torch.nn.Parameter(plain), with_gaps):
        made = []
        there = calls_of(lambda: made.append(ds.place(x, CARD)))
        assert {name: n for name, n in there.items() if "copy to" in name} == {"copy to a card, pinned": 4}, there
        (y,) = made
        assert (y.requires_grad, y.stride()) == (x.requires_grad, x.to(CUDA, copy=True).stride())
        assert torch.equal(y.detach().cpu(), x.detach())
        back = calls_of(lambda: ds.place(y, "cpu"))
        assert {name: n for name, n in back.items() if "copy from" in name} == {"copy from a card, pinned": 4}, back
    y, given = ds.place(torch.nn.Parameter(plain), CARD), torch.empty_like(plain, device=CUDA)
    gradient = calls_of(lambda: y.backward(given))
    assert gradient["copy from a card, pinned"] == 4, gradient
    """)
