"""GPUs in a book's words: count them, choose one, put tensors and a network there."""

import paddle
from paddle import nn


def try_gpu(i=0):
    return paddle.CUDAPlace(i) if paddle.device.cuda.device_count() >= i + 1 else paddle.CPUPlace()


def try_all_gpus():
    found = [paddle.CUDAPlace(i) for i in range(paddle.device.cuda.device_count())]
    return found or [paddle.CPUPlace()]


print(paddle.device.cuda.device_count(), paddle.is_compiled_with_cuda())
print(paddle.CPUPlace(), paddle.CUDAPlace(0), paddle.CUDAPlace(1))
print(try_gpu(), try_gpu(10), try_all_gpus())
print(paddle.get_device())

x = paddle.to_tensor([1, 2, 3])
print(x.place)
X = paddle.to_tensor(paddle.ones(shape=[2, 3]), place=try_gpu())
print(X)
Y = paddle.to_tensor(paddle.full([2, 3], 0.5), place=try_gpu(1))
print(Y)

Z = X.cuda(1)
print(X.place, Z.place)
print(Y + Z)
print(Z.cuda(1) is Z, Z.place == paddle.CUDAPlace(1), Z.is_cuda, X.cpu().place)

net = nn.Sequential(nn.Linear(3, 1))
net = net.to(try_gpu())
print(net(X).place, net[0].weight.place, net[0].bias.place)
paddle.set_device("gpu:1")
print(paddle.get_device(), paddle.zeros([2]).place, nn.Linear(2, 2).weight.place)
paddle.set_device("cpu")
print(paddle.get_device(), paddle.zeros([2]).place)
print(paddle.zeros([2]).to("gpu:1").place, paddle.to_tensor([1.0], place="gpu:1").place)
