"""Tests of a GPU that is full, a process that forks, and a driver that does not answer."""

from __future__ import annotations


def test_a_full_gpu(run_on_each):
    """The error is devshim's and PyTorch's; nothing has moved, and the memory is freed to the byte."""
    run_on_each(
        """
    x = ds.place(torch.ones(3), CARD)
    before = torch.cuda.memory_allocated(CUDA)
    for call in (
        lambda: ds.zeros(1 << 30, dtype="float32", device=CARD),
        lambda: ds.place(torch.empty(1 << 28), CARD),
        lambda: ds.place([torch.ones(3), torch.empty(1 << 28)], CARD),
    ):
        with pytest.raises(ds.OutOfMemoryError, match=f"{CARD} is out of memory") as caught:
            call()
        assert isinstance(caught.value, torch.OutOfMemoryError)
        del caught
        assert torch.cuda.memory_allocated(CUDA) == before
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.utils.skip_init(torch.nn.Linear, 1 << 13, 1 << 13))
    small = model[0].weight
    held = torch.empty(1 << 29, dtype=torch.uint8, device=CUDA)
    with pytest.raises(ds.OutOfMemoryError, match="1.weight"):
        ds.place(model, CARD)
    assert model[0].weight is small and small.device.type == "cpu"
    assert contexts() == [LAST]
    """,
        FAKE_CUDA_MEMORY=str(1 << 30),
    )


def test_shrink_batch_may_be_the_first_call(run_on_each):
    """``import devshim``, then PyTorch, as in README.md: no earlier call has loaded the adapter."""
    run_on_each("""
    tried = []
    def step(size):
        tried.append(size)
        return torch.empty(size << 28, device=CUDA).shape
    assert ds.shrink_batch(step, 64)[1] == 4, tried
    assert contexts() == [LAST]
    """)


def test_fork(run):
    """Before CUDA is started a child may use GPUs; afterwards PyTorch's error is raised immediately."""
    run("""
    def child(call):
        pid = os.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        try:
            call()
        except RuntimeError as error:
            os._exit(7 if "forked subprocess" in str(error) else 8)
        os._exit(0)
    assert ds.device_count() == 4 and ds.try_gpu() is ds.gpu(0)
    assert child(lambda: ds.place(torch.ones(3), "gpu:1")) == 0
    ds.place(torch.ones(3), "gpu:1")
    assert child(lambda: ds.place(torch.ones(3), "gpu:1")) == 7
    assert child(lambda: ds.place([torch.ones(3)] * 9, "cpu")) == 0
    assert child(lambda: ds.device_count()) == 0
    quiet = [ds.synchronize, ds.empty_cache, lambda: ds.random.seed(1), lambda: ds.MetricLog("cpu").flush()]
    assert child(lambda: [call() for call in quiet]) == 0
    for call in (lambda: ds.zeros(3, device="gpu:0"), lambda: ds.place([torch.ones(3)] * 9, "gpu:0"),
                 lambda: ds.describe("gpu:0"), lambda: ds.memory("gpu:0"), lambda: ds.on("gpu:0").__enter__()):
        assert child(call) == 7
    """)
