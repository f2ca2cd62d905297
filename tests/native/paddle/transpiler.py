import paddle


def gpus():
    """Return the places of all GPUs; an empty list on a machine without a GPU."""
    return [paddle.CUDAPlace(i) for i in range(paddle.device.cuda.device_count())]


def try_gpu(i=0):
    """Return the place of GPU i if it exists, and that of the CPU otherwise."""
    return gpus()[i] if len(gpus()) > i else paddle.CPUPlace()


def try_all_gpus():
    """Return the places of all GPUs, or of the CPU on a machine without a GPU."""
    return gpus() or [paddle.CPUPlace()]


print(paddle.device.cuda.device_count(), len(try_all_gpus()))
print(len([paddle.CPUPlace(), *gpus()]))
print(len(gpus()))

# A tensor starts on the host; X is created on the first GPU, and Y on the second.
x = paddle.to_tensor([1.0, 2.0, 3.0], dtype="float32", place=paddle.CPUPlace())
X = paddle.ones((2, 3)).to(try_gpu())  # float32
Y = paddle.full((2, 3), 0.5).to(paddle.CUDAPlace(1))
print(x.numpy().tolist(), X.place == Y.place)

paddle.seed(0)
R = paddle.rand((2, 3), dtype="float32").to(try_gpu(1))
N = (3.0 + 0.0 * paddle.randn((4,))).to(paddle.CUDAPlace(0))
print(tuple(R.shape), N.numpy().tolist(), R.place == Y.place)

Z = X.to(paddle.CUDAPlace(1))  # to the GPU of Y
S = (lambda a, b: a + b)(Y, Z)
print(S.numpy().tolist(), S.place == Y.place)
print(Z.to(paddle.CUDAPlace(1)) is Z, Z._copy_to(paddle.CUDAPlace(1), True) is Z)

where = "gpu:0"
parts = [part.to(paddle.CUDAPlace(0)) for part in (X, Y)]
tree = paddle.utils.map_structure(lambda tensor: tensor.to(paddle.CUDAPlace(0)), {"a": X, "b": [Z]})
print({part.place == X.place for part in [*parts, tree["a"], tree["b"][0]]})


def total(tensor):
    # The host has the sum.
    return float(tensor.to(paddle.CPUPlace()).numpy().sum())


for device in try_all_gpus():
    zeros = paddle.zeros((2,)).to(device)
    print(total(X.to(device)) + total(zeros))

H = paddle.to_tensor(Y.numpy(), place=try_gpu(10))
print(total(H), H.place == x.place)
