"""Tests that the current GPU belongs to each thread, and is unchanged after every call."""

from __future__ import annotations


def test_every_call_restores_the_current_gpu(run):
    run("""
    torch.cuda.set_device(2)
    calls = [
        lambda: ds.place(torch.ones(3), CARD),
        lambda: ds.place([torch.full((9,), float(i)) for i in range(9)], CARD),
        lambda: ds.place(torch.ones(1 << 25), CARD),
        lambda: ds.place(ds.place(torch.ones(1 << 25), CARD), "cpu"),
        lambda: ds.copy(ds.place(torch.ones(3), CARD), "gpu:1"),
        lambda: ds.zeros(3, device=CARD),
        lambda: ds.random.uniform(size=3, device=CARD),
        lambda: ds.run(torch.clone, ds.place(torch.ones(3), CARD)),
        lambda: ds.describe(CARD),
        lambda: ds.memory(CARD),
        lambda: ds.synchronize(),
        lambda: ds.empty_cache(),
        lambda: ds.all_reduce_([torch.ones(3, device=f"cuda:{i}") for i in range(4)]),
        lambda: ds.broadcast(torch.ones(3), ds.try_all_gpus()),
        lambda: ds.convert(ds.place(torch.ones(3), CARD), "numpy", "cpu"),
    ]
    for call in calls:
        call()
        assert current() == torch.cuda.current_device() == 2
    with pytest.raises(ds.OutOfMemoryError):
        ds.zeros(1 << 34, dtype="float32", device=CARD)
    with pytest.raises(ds.DeviceNotFoundError):
        ds.on("gpu:9").__enter__()
    assert current() == torch.cuda.current_device() == 2
    assert ds.place(torch.ones(3), torch.device("cuda")).device.index == 2
    assert ds.place(torch.ones(3), "cuda").device.index == 0
    """)


def test_scopes_and_set_device_affect_only_their_thread(run):
    run("""
    import threading
    seen = {}
    def look(name):
        seen[name] = torch.cuda.current_device(), ds.zeros(1).device.type
    with ds.on("gpu:1"):
        look("inside")
        with ds.on(CARD):
            look("nested")
        thread = threading.Thread(target=look, args=("thread",))
        thread.start()
        thread.join()
    look("after")
    assert seen == {"inside": (1, "cuda"), "nested": (3, "cuda"), "thread": (0, "cpu"), "after": (0, "cpu")}, seen
    ds.set_device("gpu:2")
    look("set")
    ds.set_device("cpu")
    look("set back")
    assert seen["set"] == (2, "cuda") and seen["set back"][1] == "cpu", seen
    where = ds.parallel([lambda x: (torch.cuda.current_device(), x.device.index)] * 4,
                        [torch.ones(1, device=f"cuda:{i}") for i in range(4)])
    assert [index for _, index in where] == [0, 1, 2, 3], where
    """)
