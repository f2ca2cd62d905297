"""Tests of a TensorFlow CUDA build on GPUs that do not exist: counting, copies, memory, full GPUs, failing drivers."""

from __future__ import annotations

import pytest
from certifying import certify_claims


def test_counting_and_describing_start_nothing(run_on_each):
    run_on_each("""
    from tensorflow.python.eager import context
    assert ds.device_count() == LAST + 1
    found = ds.describe(CARD)
    assert (found.name, found.compute_capability, found.simulated) == ("Fake card", (9, 0), False)
    assert contexts() == []
    with pytest.raises(ds.DeviceNotFoundError, match="the driver shows no more"):
        ds.zeros(3, device=f"gpu:{LAST + 1}")
    """)


def test_copies_to_a_gpu_and_back(run_on_each):
    run_on_each("""
    import numpy as np
    for dtype in ("bool", "int8", "int32", "int64", "float16", "float32", "float64", "complex64"):
        values = np.arange(11).astype(dtype)
        x = ds.from_numpy(values, CARD)
        assert ds.device_of(x) is ds.gpu(LAST)
        for moved in (x, ds.place(x, "gpu:0"), ds.place(x, "cpu")):
            back = ds.to_numpy(moved)
            assert back.dtype == values.dtype and (back == values).all(), dtype
        assert ds.place(x, CARD) is x
        ds.to_numpy(x)[0] = 1
        assert ds.to_numpy(x)[0] == values[0]
    """)


def test_a_copy_between_gpus_takes_one_call(run):
    run("""
    import numpy as np
    x = ds.from_numpy(np.ones(100, "float32"), CARD)
    ds.place(x, "gpu:0")
    assert calls_of(lambda: ds.place(x, CARD)) == {}
    assert calls_of(lambda: ds.place(x, "gpu:0"))["copy between cards"] == 1
    """)


def test_a_full_gpu(run):
    """TensorFlow waits for ten seconds before it raises."""
    run(
        """
        import numpy as np
        ds.memory_policy("grow")
        x = ds.from_numpy(np.ones(1 << 30, "uint8"))
        with pytest.raises(ds.OutOfMemoryError, match=f"{CARD} is out of memory: 1,073,741,824 bytes"):
            ds.place(x, CARD)
        """,
        FAKE_CUDA_MEMORY=str(1 << 30),
    )


def test_no_call_needs_soft_placement(run):
    """A user may switch it off; operators that a GPU lacks for a dtype are then emulated."""
    run("""
    import tensorflow as tf
    tf.config.set_soft_device_placement(False)
    names = "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 float32 float64 bfloat16 complex64".split()
    for name in names:
        x = ds.place(ds.ones((4, 3), dtype=name), CARD)
        made = [getattr(ds, make)((2, 3), dtype=name, device=CARD) for make in ("zeros", "ones", "empty")]
        made += [ds.full(3, 1, dtype=name, device=CARD), ds.eye(3, dtype=name, device=CARD), ds.full_like(x, 1)]
        made += [ds.asarray([1, 0], dtype=name, device=CARD), ds.copy(x, CARD), ds.gather([x, x], CARD)]
        made += [*ds.split(x, [CARD, CARD]), *ds.place([x[0], x[1]], CARD)]
        assert {ds.device_of(each) for each in made} == {ds.gpu(LAST)}, name
        assert {each.dtype.name for each in made} == {name}
        assert (ds.to_numpy(ds.place(x, "cpu")) == 1).all()
        if name not in ("bool", "complex64"):
            log = ds.MetricLog(CARD)
            for _ in range(2):
                log.append(ds.place(ds.ones((), dtype=name), CARD))
            log.flush()
    """)


def test_errors_are_the_same_without_soft_placement(run):
    """An operation that a GPU cannot do is refused as before."""
    run("""
    import tensorflow as tf
    tf.config.set_soft_device_placement(False)
    with pytest.raises(ds.DeviceNotFoundError):
        ds.zeros(3, dtype="uint32", device="gpu:9")
    assert ds.to_numpy(ds.full(3, 7, dtype="uint64", device=CARD)).tolist() == [7, 7, 7]
    """)


@pytest.mark.parametrize("error", ["3", "100", "999"])
def test_a_driver_that_does_not_start(run, error):
    run(
        """
        assert ds.device_count() == 0 and ds.try_gpu() is ds.cpu()
        with pytest.raises(ds.DeviceNotFoundError, match="TensorFlow has 0 gpu devices: .*CUDA does not start"):
            ds.zeros(3, device="gpu:1")
        assert ds.to_numpy(ds.zeros(3)).tolist() == [0, 0, 0]
        """,
        FAKE_CUDA_BROKEN=error,
    )


def test_claims_that_need_no_kernels_are_true(tmp_path):
    """`devshim certify`; a full GPU would take a minute, because TensorFlow waits for ten seconds each time."""
    found = certify_claims(tmp_path, "tensorflow", "start.[cdvthbg]*", FAKE_CUDA_GPUS="1")
    assert {"start.counting", "start.visible", "start.by_uuid", "start.growing"} <= set(found)
    found |= certify_claims(tmp_path, "tensorflow", "tensorflow.[cl]*", FAKE_CUDA_GPUS="1")
    assert not {name: result for name, result in found.items() if not result.startswith("PASS")}


def test_a_crash_shows_its_cause(tmp_path):
    """Matrix products crash here: cuBLAS is missing."""
    found = certify_claims(tmp_path, "tensorflow", "models.[fc]*", FAKE_CUDA_GPUS="1")
    assert "SIGABRT; it wrote: F0000" in found["models.forward"]
    assert "Check failed: blas_" in found["models.forward"]
    assert found["models.checkpoint"].startswith("PASS")  # a new process continues with the next claim
