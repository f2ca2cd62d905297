"""Run with CUDA_VISIBLE_DEVICES=-1: a build for CUDA shows no GPU, and computes on the CPU.

Where the real build ends the process, an error has the same text.
"""

import paddle


def fails(call):
    """Return the first line of the error."""
    try:
        return call()
    except ValueError as error:
        return str(error).splitlines()[0]


cuda = paddle.device.cuda
print(paddle.is_compiled_with_cuda(), cuda.device_count(), paddle.get_device(), paddle.static.cuda_places())
print(paddle.device.get_all_device_type(), paddle.device.get_available_device())
for call in (
    lambda: paddle.set_device("gpu"),
    lambda: paddle.device.set_device("gpu:1"),
    lambda: paddle.CUDAPlace(0),
    lambda: paddle.ones([1]).cuda(),
    lambda: paddle.ones([1]).to("gpu"),
    lambda: paddle.to_tensor([1.0], place="gpu"),
    lambda: paddle.nn.Linear(2, 2).to("gpu"),
    lambda: cuda.synchronize(),
    lambda: cuda.get_device_name(),
    lambda: cuda.get_device_capability(0),
    lambda: cuda.get_device_properties(0),
    lambda: cuda.memory_allocated(),
    lambda: cuda.max_memory_reserved(0),
    lambda: cuda.current_stream(),
):
    print(fails(call))
print(paddle.get_cuda_rng_state(), paddle.set_cuda_rng_state([]), cuda.empty_cache())
paddle.seed(1)
net = paddle.nn.Linear(2, 1)
optimizer = paddle.optimizer.Adam(parameters=net.parameters())
loss = net(paddle.ones([1, 2])).sum()
loss.backward()
optimizer.step()
print(loss.place, net.weight.grad.place, paddle.set_device("cpu"), (paddle.ones([2]) + 1).place.is_gpu_place())
