"""Tests of the CUDA build of JAX on GPUs that do not exist: counting, copies, memory, a full GPU, a failing driver."""

from __future__ import annotations

import pytest
from certifying import certify_claims

MEMORY = str(1 << 30)


def test_counting_and_describing_start_nothing(run_on_each):
    run_on_each("""
    from jax._src import xla_bridge
    assert ds.device_count() == LAST + 1
    assert ds.require(CARD) is ds.gpu(LAST)
    found = ds.describe(CARD)
    assert (found.name, found.simulated) == ("Fake card", False)
    assert contexts() == [] and not xla_bridge.backends_are_initialized()
    with pytest.raises(ds.DeviceNotFoundError, match="the driver shows no more"):
        ds.zeros(3, device=f"gpu:{LAST + 1}")
    """)


def test_a_description_is_the_same_after_the_start(run):
    run("""
    before = ds.describe(CARD)
    ds.place(ds.zeros(3), CARD)
    assert ds.describe(CARD) == before
    """)


def test_copies_to_a_gpu_and_back(run_on_each):
    run_on_each("""
    import numpy as np
    for dtype in ("bool", "int8", "uint16", "int32", "float16", "float32", "float64", "complex64"):
        values = np.arange(11).astype(dtype)
        x = ds.from_numpy(values, CARD)
        assert ds.device_of(x) is ds.gpu(LAST) and x.device == jax.devices("cuda")[LAST]
        for moved in (x, ds.copy(x, CARD), ds.place(x, "gpu:0"), ds.place(x, "cpu")):
            back = ds.to_numpy(moved)
            assert back.dtype == values.dtype and (back == values).all()
        assert ds.place(x, CARD) is x and ds.copy(x, CARD) is not x
    tree = ds.place({"a": [ds.from_numpy(np.full(n, n)) for n in range(20)]}, CARD)
    assert [ds.to_numpy(x).sum() for x in tree["a"]] == [n * n for n in range(20)]
    """)


def test_copies_take_as_many_calls_as_jax_takes(run):
    run("""
    import numpy as np
    x = ds.from_numpy(np.ones(100, "float32"), CARD)
    jax.block_until_ready(x)
    ds.synchronize()
    assert calls_of(lambda: ds.place(x, CARD)) == {}
    counted = calls_of(lambda: ds.place(x, "gpu:0"))
    assert counted.pop("copy between cards") == 1 and not any("copy" in name for name in counted)
    ds.copy(x, CARD)
    counted = calls_of(lambda: ds.copy(x, CARD))
    assert counted.pop("copy on a card") == 1 and not any("copy" in name for name in counted)
    """)


def test_reading_leaves_no_copy_on_the_host(run):
    """JAX keeps a host copy of values that it reads from a GPU, and with it the memory, as long as the array lives."""
    run("""
    import numpy as np
    x = ds.from_numpy(np.ones(100, "float32"), CARD)
    for read in (lambda: ds.to_numpy(x), lambda: ds.place(x, "cpu"), lambda: ds.place([x], "cpu")):
        for _ in range(2):
            counted = calls_of(read)
            assert sum(n for name, n in counted.items() if name.startswith("copy from a card")) == 1, counted
    """)


def test_a_process_without_preallocation_takes_what_it_uses(run):
    run(
        """
        ds.memory_policy("grow")
        x = ds.place(ds.zeros(1 << 20, dtype="float32"), CARD)
        found = ds.memory(CARD)
        assert found.used == 4 << 20 and found.peak >= found.used
        with pytest.raises(ds.AlreadyStartedError):
            ds.memory_policy("grow")
        with pytest.raises(ds.AlreadyStartedError):
            ds.set_visible_devices([0])
        """,
        FAKE_CUDA_MEMORY=MEMORY,
    )


def test_a_full_gpu(run):
    """JAX waits for ten seconds before it raises."""
    run(
        """
        import numpy as np
        y = ds.from_numpy(np.ones(1 << 30, "uint8"))
        with pytest.raises(ds.OutOfMemoryError, match=f"{CARD} is out of memory: 1,073,741,824 bytes"):
            ds.place(y, CARD)
        assert ds.to_numpy(ds.place(y[:5], CARD)).tolist() == [1] * 5
        """,
        FAKE_CUDA_MEMORY=MEMORY,
        XLA_PYTHON_CLIENT_PREALLOCATE="false",
    )


def test_a_result_that_does_not_fit_is_refused(run):
    """JAX returns an array nevertheless, and raises when it is read (0.10.2)."""
    run(
        """
        import jax.numpy as jnp
        full = f"{CARD} is out of memory"
        with pytest.raises(ds.OutOfMemoryError, match=full):
            ds.zeros(1 << 30, dtype="uint8", device=CARD)
        with pytest.raises(ds.OutOfMemoryError, match=full):
            ds.random.uniform(size=1 << 28, device=CARD)
        with jax.default_device(jax.devices("cuda")[LAST]):
            x = jnp.zeros(1 << 30, "uint8")
        with pytest.raises(ds.OutOfMemoryError, match=full):
            ds.synchronize(CARD)
        """,
        FAKE_CUDA_MEMORY=MEMORY,
        XLA_PYTHON_CLIENT_PREALLOCATE="false",
    )


def test_claims_that_need_no_kernels_are_true(tmp_path):
    """`devshim certify` accepts each pattern as a person would type it; claims that need kernels' values fail here."""
    found = certify_claims(tmp_path, "jax", "start.[cdvthbg]*", FAKE_CUDA_GPUS="1")
    assert {"start.counting", "start.visible", "start.by_uuid", "start.growing"} <= set(found)
    found |= certify_claims(tmp_path, "jax", "tensors.[mnrt]*", FAKE_CUDA_GPUS="1")
    assert found["tensors.round_trip"] == "PASS all dtypes"
    found |= certify_claims(tmp_path, "jax", "jax.[cwm]*", FAKE_CUDA_GPUS="1")
    found |= certify_claims(tmp_path, "jax", "memory.[ft]*", FAKE_CUDA_MEMORY=MEMORY, FAKE_CUDA_GPUS="1")
    assert found.pop("jax.compiled_once") == "SKIP needs 2 GPUs"
    assert not {name: result for name, result in found.items() if not result.startswith("PASS")}


def test_a_false_claim_reports_the_observed_value(tmp_path):
    found = certify_claims(tmp_path, "jax", "*.[cr]*[ing]", FAKE_CUDA_GPUS="1")
    assert found["scopes.running"].startswith("FAIL the product of two 4 by 4 matrices of ones is [[")
    assert found["tensors.creating"].startswith("FAIL ones with device=gpu:0 holds [[")


def test_pinned_host_memory_is_on_the_cpu(run):
    run("""
    import numpy as np
    x = ds.from_numpy(np.arange(5), CARD)
    there = jax.devices("cuda")[LAST]
    pinned = jax.device_put(x, jax.sharding.SingleDeviceSharding(there, memory_kind="pinned_host"))
    assert ds.device_of(pinned) is ds.cpu()
    placed = ds.place(pinned, CARD)
    assert placed.sharding.memory_kind == "device" and ds.device_of(placed) is ds.gpu(LAST)
    assert ds.to_numpy(placed).tolist() == [0, 1, 2, 3, 4] == ds.to_numpy(pinned).tolist()
    assert ds.to_numpy(ds.place([pinned], "gpu:0")[0]).tolist() == [0, 1, 2, 3, 4]
    assert ds.to_numpy(ds.copy(pinned, "cpu")).tolist() == [0, 1, 2, 3, 4]
    """)


@pytest.mark.parametrize("value", ["2,0", "GPU-11111111-1111-1111-1111-111111111102,0"], ids=["index", "UUID"])
def test_gpus_are_in_the_order_of_the_variable(run, value):
    run(
        """
        assert ds.device_count() == 2
        uuid = ds.describe("gpu:0").uuid
        assert uuid.endswith("02")
        ds.place(ds.zeros(3), "gpu:1")
        assert ds.device_count() == 2 == len(jax.devices("cuda"))
        """,
        CUDA_VISIBLE_DEVICES=value,
    )


def test_a_slice_is_a_gpu(run):
    run(
        """
        assert ds.device_count() == 1
        assert ds.device_of(ds.place(ds.zeros(3), ds.try_gpu())) is ds.gpu(0)
        """,
        CUDA_VISIBLE_DEVICES="MIG-11111111-1111-1111-1111-111111111102",
    )


def test_jax_finds_no_gpu_without_nvml(run):
    """CUDA shows the GPUs, and XLA queries NVML first (0.10.2): they are counted, and the first use gives the reason.

    JAX raises at its first call of any kind, and continues without GPUs, as devshim does.
    """
    run(
        """
        assert ds.device_count() == 4
        assert ds.to_numpy(ds.zeros(3)).tolist() == [0, 0, 0]
        with pytest.raises(ds.DeviceNotFoundError, match="JAX has 0 gpu devices: .*No visible GPU devices"):
            ds.zeros(3, device="gpu:0")
        """,
        FAKE_NVML_BROKEN="18",
    )


@pytest.mark.parametrize("error", ["35", "3", "100", "999"])
def test_a_driver_that_does_not_start(run, error):
    """NVML still answers; a call that needs a GPU raises with the driver's reason, and the host works."""
    run(
        """
        assert ds.device_count() == 4
        with pytest.raises(ds.DeviceNotFoundError, match="JAX has 0 gpu devices: .*CUDA does not start"):
            ds.zeros(3, device="gpu:1")
        assert ds.device_count() == 0 and ds.try_gpu() is ds.cpu()
        with pytest.raises(ds.DeviceNotFoundError, match="CUDA does not start"):
            ds.memory("gpu:0")
        assert ds.to_numpy(ds.place(ds.zeros(3), "cpu")).tolist() == [0, 0, 0]
        """,
        FAKE_CUDA_BROKEN=error,
    )


def test_without_the_drivers_files_there_is_no_gpu(run):
    run("""
    from jax._src import hardware_utils
    hardware_utils._NVIDIA_GPU_DEVICES = ("/there/is/none",)
    assert ds.device_count() == 0 and ds.try_gpu() is ds.cpu()
    with pytest.raises(ds.DeviceNotFoundError, match="no /dev/nvidia0"):
        ds.zeros(3, device="gpu:0")
    """)


def test_set_visible_devices(run):
    run("""
    ds.set_visible_devices([3, 1])
    assert ds.device_count() == 2 and ds.describe("gpu:0").uuid.endswith("03")
    ds.place(ds.zeros(3), "gpu:1")
    assert len(jax.devices("cuda")) == 2
    """)


def test_only_host_arrays_convert_to_numpy(run):
    run("""
    import numpy as np
    x = ds.from_numpy(np.arange(5), CARD)
    with pytest.raises(ds.DevshimError):
        ds.convert(x, "numpy")
    assert ds.convert(x, "numpy", device="cpu").tolist() == [0, 1, 2, 3, 4]
    """)
