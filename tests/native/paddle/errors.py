"""Errors of a program on GPUs: a missing GPU, two GPUs in one operator, too little memory, pinned memory, processes."""

import os
import tempfile

import paddle

x = paddle.ones([3]).cuda(1)
host = paddle.sparse.sparse_coo_tensor([[0], [1]], [1.0], [2, 2], place=paddle.CPUPlace())
for call in (
    lambda: paddle.CUDAPlace(7),
    lambda: paddle.set_device("gpu:2"),
    lambda: paddle.ones([3]).to("gpu:2"),
    lambda: paddle.to_tensor([1], place="gpu:2"),
    lambda: paddle.device.cuda.memory_allocated(2),
    lambda: x + paddle.ones([3]),
    lambda: paddle.CUDAPinnedPlace(),
    lambda: x.pin_memory(),
    lambda: paddle.sparse.sparse_coo_tensor([[0], [1]], [1.0], [2, 2]),
    lambda: paddle.sparse.sparse_csr_tensor([0, 1, 1], [1], [1.0], [2, 2], place="gpu:1"),
    lambda: x.to_sparse_coo(1),
    lambda: host.cuda(),
    lambda: host.to("gpu:0"),
    lambda: paddle.nn.LSTM(4, 3).to("gpu:1")(paddle.ones([1, 2, 4]).to("gpu:1")),
    lambda: paddle.CUDAPlace("gpu:1"),
    lambda: paddle.CUDAPlace(),
    lambda: paddle.set_device("foo"),
    lambda: paddle.ones([2]).to("gpu:x"),
    lambda: paddle.exp(paddle.ones([2, 2], dtype="int8")),
    lambda: paddle.utils.dlpack.to_dlpack(x),
):
    try:
        call()
    except (ValueError, TypeError, RuntimeError) as error:
        print(str(error).split(" of kernel")[0].split(", which")[0].split(", and /")[0].splitlines()[0])
try:
    paddle.ones([10_000_000])
except MemoryError as error:
    print(str(error).splitlines()[0])
paddle.set_device("cpu")
with tempfile.TemporaryDirectory() as folder:
    spec = [paddle.static.InputSpec([None, 600], "float32")]
    paddle.jit.save(paddle.nn.Linear(600, 600), f"{folder}/large", input_spec=spec)
    files = sorted(os.path.join(folder, each) for each in os.listdir(folder))
    config = paddle.inference.Config(*(each for each in files if not each.endswith(".info")))
    config.enable_use_gpu(100, 1)
    try:
        paddle.inference.create_predictor(config)
    except MemoryError as error:
        print(str(error).partition(" Cannot")[0])
paddle.set_device("gpu:1")  # where the layer creates its first states
print(paddle.nn.LSTM(4, 3)(paddle.ones([1, 2, 4]))[0].place)
paddle.set_device("gpu:0")
try:
    x + paddle.ones([3])
except ValueError as error:
    print(str(error).splitlines()[-1])
print(repr(paddle.device.cuda.get_device_properties(1)).partition("', ")[2])
print(paddle.device.cuda.get_device_capability(), str(x.get_tensor()).splitlines()[2])
print(paddle.get_device(), x.sum().item())
print(host.place, host.to_dense().place, x.cpu().to_sparse_coo(1).values().place)
os.environ.update(PADDLE_TRAINERS_NUM="2", PADDLE_TRAINER_ID="0", PADDLE_TRAINER_ENDPOINTS="127.0.0.1:1,127.0.0.1:2")
try:
    paddle.distributed.init_parallel_env()
except NotImplementedError as error:
    print(str(error).splitlines()[0])
