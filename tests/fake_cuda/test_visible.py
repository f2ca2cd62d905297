"""Tests of the GPUs that a process sees: by index and by UUID, slices, and settings that come too late."""

from __future__ import annotations

import pytest

UUID = "GPU-11111111-1111-1111-1111-1111111111{:02x}".format


@pytest.mark.parametrize("value", ["2,0", f"{UUID(2)},{UUID(0)}"], ids=["index", "UUID"])
def test_gpus_are_in_the_order_of_the_variable(run, value):
    run(
        f"""
        assert ds.device_count() == 2
        assert [ds.describe(card).uuid for card in ds.devices("gpu")] == ["{UUID(2)}", "{UUID(0)}"]
        x = ds.place(torch.ones(3), "gpu:1")
        assert contexts() == [1] and x.device.index == 1
        with pytest.raises(ds.DeviceNotFoundError, match="CUDA_VISIBLE_DEVICES"):
            ds.place(x, "gpu:2")
        """,
        CUDA_VISIBLE_DEVICES=value,
    )


@pytest.mark.parametrize(
    ("value", "count"), [("", 0), ("-1", 0), ("1,-1,2", 1), ("3,9,1", 1), ("NoDevFiles", 0), ("1,1", 0), ("1a,3", 2)]
)
def test_entries_after_an_unknown_gpu_are_ignored(run, value, count):
    run(
        f"""
        assert ds.device_count() == {count} == torch.cuda.device_count()
        ds.synchronize()
        assert len(ds.try_all_gpus()) == max({count}, 1)
        """,
        CUDA_VISIBLE_DEVICES=value,
    )


def test_a_slice_is_a_gpu(run):
    """A process gets one slice (MIG); PyTorch queries CUDA itself for the count."""
    run(
        """
        assert ds.device_count() == 1
        assert ds.try_gpu() is ds.gpu(0)
        x = ds.place(torch.ones(3), "gpu:0")
        assert ds.place(x, "cpu").tolist() == [1, 1, 1]
        assert "MIG" in ds.describe("gpu:0").name
        """,
        CUDA_VISIBLE_DEVICES="MIG-11111111-1111-1111-1111-111111111102",
    )


def test_a_slice_has_its_own_uuid(run):
    """It has the form that ``CUDA_VISIBLE_DEVICES`` accepts; PyTorch omits the kind of device of the UUID."""
    slice_ = "MIG-11111111-1111-1111-1111-111111111102"
    run(f"assert ds.describe('gpu:0').uuid == '{slice_}'", CUDA_VISIBLE_DEVICES=slice_)
    run(f"assert ds.describe('gpu:2').uuid == '{UUID(2)}'")


@pytest.mark.parametrize("value", [None, "2", "2,3", UUID(2)], ids=str)
def test_in_mig_mode_only_one_slice_is_visible(run, value):
    """NVML counts the GPUs, and so does ``torch.cuda.device_count()``; devshim counts what can be used."""
    run(
        f"""
        assert torch.cuda.device_count() == {4 if value is None else len(value.split(","))}
        assert ds.device_count() == 1 and ds.devices() == [ds.cpu(), ds.gpu(0)]
        assert ds.try_all_gpus() == [ds.gpu(0)] and ds.try_gpu(1) is ds.cpu()
        assert not torch.cuda.is_initialized()
        for call in (lambda: ds.zeros(3, device="gpu:1"), lambda: ds.place(torch.ones(3), "gpu:1"),
                     lambda: ds.require("gpu:1"), lambda: ds.describe("gpu:1"), lambda: ds.memory("gpu:1"),
                     lambda: ds.place([torch.ones(3)] * 9, "gpu:1")):
            with pytest.raises(ds.DeviceNotFoundError, match="MIG mode, where CUDA shows one slice to a process"):
                call()
        if {value is None}:
            with pytest.raises(ds.DeviceNotFoundError, match="asks for gpu:1, and 1 is visible: a GPU is in MIG mode"):
                ds.set_visible_devices([1])
        assert contexts() == []
        x = ds.place(torch.ones(3), "gpu:0")
        assert ds.device_count() == 1
        ds.synchronize()
        ds.memory_policy(0.5)
        with ds.guard("error"), pytest.raises(ds.TransferError, match="from gpu:0 to cpu"):
            x.nonzero()
        with pytest.raises(ds.DeviceNotFoundError):
            ds.place(x, "gpu:1")
        assert ds.describe("gpu:0").uuid.startswith("MIG-")
        assert ds.place(x, "cpu").tolist() == [1, 1, 1]
        """,
        FAKE_CUDA_MIG="1",
        **({} if value is None else {"CUDA_VISIBLE_DEVICES": value}),
    )


@pytest.mark.parametrize("order", [None, "PCI_BUS_ID"])
def test_different_gpus_are_numbered_as_by_cuda(run, order):
    """CUDA lists the fastest first, and the driver by bus; CUDA decides which GPU has which number."""
    run(
        f"""
        seen = [ds.describe(card) for card in ds.devices("gpu")]
        numbers = [3, 0, 1, 2] if {order is None} else [0, 1, 2, 3]
        assert [info.uuid[-2:] for info in seen] == [f"{{n:02x}}" for n in numbers], seen
        assert [info.name == "Fake fast card" for info in seen] == [n == 3 for n in numbers]
        from devshim.devices import nvml
        known = [nvml.card_at(i) for i in range(4)]
        assert known == [None] * 4 or [card.uuid for card in known] == [info.uuid for info in seen]
        assert (known[0] is None) == {order is None}
        """,
        FAKE_CUDA_FASTEST="3",
        **({} if order is None else {"CUDA_DEVICE_ORDER": order}),
    )
    run(
        f"""
        ds.set_visible_devices([0, 2])
        last = 3 if {order is None} else 0
        assert [ds.describe(card).uuid[-2:] for card in ds.devices("gpu")] == [f"0{{last}}", f"0{{last and 1 or 2}}"]
        """,
        FAKE_CUDA_FASTEST="3",
        **({} if order is None else {"CUDA_DEVICE_ORDER": order}),
    )


def test_nvml_is_started_once(run):
    """Starting it takes milliseconds on a real driver; PyTorch may do it once more."""
    run("""
    import ctypes
    started = ctypes.CDLL("libnvidia-ml.so.1").fake_nvml_starts
    for _ in range(5):
        ds.device_count()
        ds.try_all_gpus()
        ds.require(CARD)
        with pytest.raises(ds.DeviceNotFoundError):
            ds.require("gpu:9")
    ds.place(torch.ones(3), CARD)
    before = started()
    assert before <= 2
    for _ in range(5):
        ds.place(torch.ones(3), CARD)
        ds.memory(CARD)
        ds.describe(CARD)
    assert started() == before
    """)


@pytest.mark.parametrize("error", ["35", "3", "999"])
def test_a_driver_that_cannot_start(run, error):
    """If it is too old, not initialized or unknown, NVML still answers, so GPUs are counted until one is used."""
    run(
        """
        calls = [
            lambda: ds.zeros(3, device="gpu:0"), lambda: ds.place(torch.ones(3), "gpu:0"),
            lambda: ds.place([torch.ones(3)] * 9, "gpu:0"), lambda: ds.describe("gpu:0"), lambda: ds.memory("gpu:0"),
            lambda: ds.from_numpy(torch.ones(3).numpy(), "gpu:0"), lambda: ds.random.uniform(size=3, device="gpu:0"),
            lambda: ds.place(torch.nn.Linear(3, 3), "gpu:0"), lambda: ds.on("gpu:0").__enter__(),
            lambda: ds.set_device("gpu:0"), lambda: ds.asarray([1], device="gpu:0"),
            lambda: ds.synchronize("gpu:0"), lambda: ds.empty_cache("gpu:0"), lambda: ds.memory_policy(0.5),
            lambda: ds.broadcast(torch.ones(3), ["gpu:0"]), lambda: ds.full((3,), 1.0, device="gpu:0"),
        ]
        def first(call):
            assert ds.device_count() == 4
            with pytest.raises(ds.DeviceNotFoundError, match="has 0 gpu devices: CUDA does not start") as caught:
                call()
            assert "try_gpu" in caught.value.hint and isinstance(caught.value.__cause__, RuntimeError), caught.value
            assert ds.device_count() == 0 and ds.try_gpu() is ds.cpu() and ds.try_all_gpus() == [ds.cpu()]
            with pytest.raises(ds.DeviceNotFoundError, match="CUDA does not start"):
                ds.require("gpu:1")
            ds.synchronize()
            ds.empty_cache()
            assert ds.place(torch.ones(3), "cpu").tolist() == [1, 1, 1]
        for call in calls:  # each is the first in a process
            child = os.fork()
            if not child:
                try:
                    first(call)
                except BaseException:
                    import traceback
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        """,
        FAKE_CUDA_BROKEN=error,
    )


def test_set_visible_devices(run):
    run(f"""
    ds.set_visible_devices([3, 1])
    assert ds.device_count() == 2
    assert ds.describe("gpu:0").uuid == "{UUID(3)}"
    with pytest.raises(ds.AlreadyStartedError):
        ds.set_visible_devices([0])
    """)
    run("""
    assert torch.cuda.is_available()  # initializes the driver
    with pytest.raises(ds.AlreadyStartedError):
        ds.set_visible_devices([0])
    """)


def test_without_nvml_cuda_counts_the_gpus(run_on_each):
    """A container may have CUDA without NVML; PyTorch then warns, and counts with the driver."""
    run_on_each(
        """
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert ds.device_count() == LAST + 1
            assert contexts() == []
            ds.set_visible_devices([LAST])  # which a mere count leaves possible
            assert ds.device_count() == 1
            assert ds.describe("gpu:0").uuid.endswith(f"{LAST:02x}")
        """,
        FAKE_NVML_BROKEN="18",
    )
