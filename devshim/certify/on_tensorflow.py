"""Claims about TensorFlow: int32, which its GPU kernels keep in host memory, variables, gradients."""

from __future__ import annotations

import devshim as ds
from devshim.certify.claims import Claims, Setting, expect

__all__ = ["CLAIMS"]

CLAIMS = Claims("tensorflow")


@CLAIMS.add("devshim's GPUs are those of tf.config.list_physical_devices('GPU').", real=True)
def counting(at: Setting) -> None:
    """Compare with TensorFlow's own list."""
    own = ds.framework().config.list_physical_devices("GPU")
    expect(ds.device_count() == len(own), f"devshim counts {ds.device_count()}, TensorFlow {len(own)}")


@CLAIMS.add("int32 labels are split, gathered and reduced on the GPU.")
def labels(at: Setting) -> None:
    """Use dtypes whose kernels return results in host memory."""
    parts = ds.split(ds.arange(8, dtype="int32"), [at.first, at.last])
    gathered = ds.gather(parts, at.first)
    expect(ds.device_of(gathered) is at.first, f"gathered on {ds.device_of(gathered)}")
    expect(ds.to_numpy(gathered).tolist() == list(range(8)), f"gathered: {ds.to_numpy(gathered).tolist()}, not 0 to 7")
    tensors = [ds.full(2, i, dtype="int32", device=at.first) for i in (3, 4)]
    for op, value in (("max", 4), ("sum", 8)):
        ds.all_reduce_(tensors, op)  # type: ignore[arg-type]
        expect(ds.device_of(tensors[1]) is at.first, f"{op}: on {ds.device_of(tensors[1])}")
        found = ds.to_numpy(tensors[1]).tolist()
        expect(found == [value] * 2, f"{op}: {found}, not {[value] * 2}")


@CLAIMS.add("An int32 sum that a GPU computed goes into its MetricLog.")
def metric(at: Setting) -> None:
    """Append the result of tf.reduce_sum."""
    with ds.on(at.first):
        value = ds.framework().reduce_sum(ds.arange(4, dtype="int32", device=at.first))
    log = ds.MetricLog(at.first)
    log.append(value)
    found = log.flush().tolist()
    expect(found == [6], f"the sum of 0 to 3 is {found}, not [6]")


@CLAIMS.add("Gradients flow through `place` and `copy`.")
def gradients(at: Setting) -> None:
    """Copy to the GPU, on the GPU, and back."""
    tf = ds.framework()
    x = ds.ones(3, dtype="float32")
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(ds.place(ds.copy(ds.place(x, at.first), at.last), "cpu") * 2.0)
    found = tape.gradient(y, x)
    expect(found is not None and ds.to_numpy(found).tolist() == [2, 2, 2], f"the gradient is {found}, not 2 everywhere")
