"""Questions of programs about GPUs: properties, memory, streams and events, threads, generators, pickles and copies."""

import copy
import pickle
import threading

import paddle

cuda = paddle.device.cuda
print(paddle.device.is_compiled_with_cuda(), paddle.device.get_all_device_type(), paddle.device.get_available_device())
properties = cuda.get_device_properties(1)
print(properties.name == cuda.get_device_name("gpu:1"), properties.total_memory > 0, cuda.get_device_capability(0))

x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]], place=paddle.CUDAPlace(1))
print(
    cuda.memory_allocated(1) > 0, cuda.max_memory_allocated("gpu:1") > 0, cuda.memory_reserved(paddle.CUDAPlace(1)) > 0
)
print(isinstance(paddle.CUDAPlace(1), paddle.CUDAPlace), isinstance(paddle.CPUPlace(), paddle.CUDAPlace))
print(
    x.place,
    repr(x.place),
    f"{x.place}",
    x.place.is_gpu_place(),
    x.place.gpu_device_id(),
    paddle.CUDAPlace(1).get_device_id(),
)
print(x.place == paddle.CUDAPlace(1), x.place == paddle.CUDAPlace(0), hash(x.place) == hash(paddle.CUDAPlace(1)))

cuda.synchronize()
cuda.synchronize(1)
cuda.empty_cache()
start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
start.record()
with cuda.stream_guard(cuda.Stream()):
    y = x.matmul(x)
end.record()
end.synchronize()
print(start.elapsed_time(end) > 0, end.query(), y.place)

found = []
thread = threading.Thread(target=lambda: found.append(paddle.ones([1]).cuda(1).place))
thread.start()
thread.join()
print(found, paddle.ones([1]).place)
print(copy.deepcopy(x).place, pickle.loads(pickle.dumps(x)).shape)
paddle.seed(1)
state = cuda.get_rng_state("gpu:0")
first = paddle.rand([3])
cuda.set_rng_state(state, "gpu:0")
print(first.place, bool((paddle.rand([3]) == first).all()))
states = paddle.get_rng_state()
first = paddle.rand([3])
paddle.set_rng_state(states)
print(len(states), len(paddle.get_cuda_rng_state()), bool((paddle.rand([3]) == first).all()))
with paddle.device.device_guard("gpu:1") if hasattr(paddle.device, "device_guard") else paddle.no_grad():
    print(paddle.rand([2]).shape)
print(paddle.version.cuda(), paddle.version.cuda == "13.0", paddle.version.cudnn(), paddle.get_cudnn_version())
x.stop_gradient = False
(x * x).sum().backward()
print(x.grad)

paddle.set_device("gpu:1")
stream = paddle.device.Stream("gpu:1")
with paddle.device.stream_guard(stream):
    print(paddle.device.current_stream("gpu:1") == stream, paddle.device.current_stream("gpu:0") == stream)
default = paddle.device.current_stream("gpu:1")
print(default == stream, paddle.device.set_stream(stream) == default, paddle.device.current_stream() == stream)
empty = [paddle.zeros([0, 3]), paddle.rand([0]), paddle.arange(0), paddle.full([0], 1.0), paddle.eye(0)]
print([each.place for each in empty], paddle.concat([empty[0], paddle.ones([1, 3])]).place, empty[1].sum().place)
print(paddle.base.core.get_cuda_device_count(), paddle.base.core.get_cuda_current_device_id())
paddle.set_flags({"FLAGS_cudnn_deterministic": True, "FLAGS_benchmark": False})
print(paddle.get_flags(["FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic", "FLAGS_benchmark"]))
try:
    paddle.set_flags({"FLAGS_unknown": 1})
except ValueError as error:
    print(error)
