"""Errors of a program on GPUs: a GPU that is not there, two GPUs in one operator, too little memory, pinned memory."""

import paddle

x = paddle.ones([3]).cuda(1)
for call in (
    lambda: paddle.CUDAPlace(7),
    lambda: paddle.set_device("gpu:2"),
    lambda: paddle.ones([3]).to("gpu:2"),
    lambda: paddle.to_tensor([1], place="gpu:2"),
    lambda: paddle.device.cuda.memory_allocated(2),
    lambda: x + paddle.ones([3]),
    lambda: paddle.CUDAPinnedPlace(),
    lambda: x.pin_memory(),
):
    try:
        call()
    except (ValueError, NotImplementedError) as error:
        print(str(error).splitlines()[0])
try:
    paddle.ones([10_000_000])
except MemoryError as error:
    print(str(error).splitlines()[0])
print(paddle.get_device(), x.sum().item())
