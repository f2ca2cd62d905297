"""Executors of static programs: their place, and the tensors that they return, are on the GPU of the program."""

import numpy as np
import paddle
from paddle.static import Executor, Program, program_guard


def used():
    return paddle.device.cuda.memory_allocated(1)


paddle.enable_static()
main, start = Program(), Program()
with program_guard(main, start):
    x = paddle.static.data("x", [None, 2], "float32")
    y = x * 2
feed = {"x": np.ones((100, 2), "float32")}
executor = Executor(paddle.CUDAPlace(1))
executor.run(start)
print(executor.place, isinstance(executor.place, paddle.CUDAPlace), executor.place.get_device_id())
print(Executor().place, Executor("gpu:1").place, Executor(paddle.CPUPlace()).place)
before = used()
(result,) = executor.run(main, feed=feed, fetch_list=[y], return_numpy=False)
print(result._place(), result.shape(), np.array(result).sum(), used() - before)
(again,) = executor.run(main, feed={"x": result}, fetch_list=[y])
print(type(again).__name__, again.sum())
(on_host,) = Executor(paddle.CPUPlace()).run(main, feed=feed, fetch_list=[y], return_numpy=False)
print(on_host._place())
