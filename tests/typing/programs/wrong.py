"""Mistakes: each type checker reports exactly the marked lines."""

from __future__ import annotations

import numpy as np

import devshim as ds
from devshim import plaec  # wrong

x = np.zeros(3)
ds.plce(x, "cpu")  # wrong
ds.random.nromal()  # wrong
ds.guard("eror")  # wrong
ds.guard("error", host_to_device="never")  # wrong
ds.split(x, ["cpu"], uneven="blance")  # wrong
ds.all_reduce_([x], "average")  # wrong
ds.Fault("gpu:0", "explosion")  # wrong
ds.memory_policy("shrink")  # wrong
ds.ones(2, 3)  # wrong
ds.zeros((2, 0.5))  # wrong
ds.empty("two")  # wrong
ds.run(divmod, 1)  # wrong
ds.run(len, x, sep="")  # wrong
ds.use(1)  # wrong
ds.gpu("1")  # wrong
ds.save(x)  # wrong
ds.shrink_batch(print, "64")  # wrong
number: int = ds.place("text", "cpu")  # wrong
words: list[int] = ds.broadcast("text", ["cpu"])  # wrong
part: str = ds.load("file", into={"x": x})  # wrong
device: str = ds.device_of(x)  # wrong
ds.place(x, "cpu", copy="yes")  # wrong
ds.place(x, "cpu", "gpu:1")  # wrong
ds.describe("cpu").memory  # wrong
with ds.transfers() as log:
    log.total  # wrong
try:
    pass
except ds.OutOfMemoryErorr:  # wrong
    pass
