"""Which cards a process sees: by index and by UUID, slices, and what is said too late."""

from __future__ import annotations

import pytest

UUID = "GPU-11111111-1111-1111-1111-1111111111{:02x}".format


@pytest.mark.parametrize("value", ["2,0", f"{UUID(2)},{UUID(0)}"], ids=["index", "UUID"])
def test_cards_in_the_order_of_the_variable(run, value):
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


@pytest.mark.parametrize(("value", "count"), [("", 0), ("-1", 0), ("1,-1,2", 1), ("3,9,1", 1), ("NoDevFiles", 0)])
def test_cards_up_to_the_first_entry_that_names_none(run, value, count):
    run(
        f"""
        assert ds.device_count() == {count} == torch.cuda.device_count()
        ds.synchronize()
        assert len(ds.try_all_gpus()) == max({count}, 1)
        """,
        CUDA_VISIBLE_DEVICES=value,
    )


def test_a_slice_is_a_card(run):
    """A process gets one slice (MIG); PyTorch asks CUDA itself how many there are."""
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


def test_a_driver_that_is_too_old(run):
    """NVML answers all the same, and PyTorch counts by it; what PyTorch then says is left as it is."""
    run(
        """
        assert ds.device_count() == 4
        with pytest.warns(UserWarning, match="driver on your system is too old"):
            assert not torch.cuda.is_available()
        ds.synchronize()
        ds.empty_cache()
        assert ds.place(torch.ones(3), "cpu").tolist() == [1, 1, 1]
        """,
        FAKE_CUDA_BROKEN="35",
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
    assert torch.cuda.is_available()  # initialises the driver
    with pytest.raises(ds.AlreadyStartedError):
        ds.set_visible_devices([0])
    """)


def test_without_nvml_cuda_is_asked(run_on_each):
    """A container may have CUDA and no NVML; PyTorch then warns, and counts by the driver."""
    run_on_each(
        """
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert ds.device_count() == LAST + 1
            assert contexts() == []
        """,
        FAKE_NVML_BROKEN="18",
    )
