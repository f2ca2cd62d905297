"""Count GPUs, put tensors on them, copy between them, and put a network on one."""

import torch
from torch import nn


def cpu():
    return torch.device("cpu")


def gpu(i=0):
    return torch.device(f"cuda:{i}")


def num_gpus():
    return torch.cuda.device_count()


def try_gpu(i=0):
    return gpu(i) if num_gpus() >= i + 1 else cpu()


def try_all_gpus():
    return [gpu(i) for i in range(num_gpus())]


print(cpu(), gpu(), gpu(1))
print(num_gpus(), torch.cuda.is_available())
print(try_gpu(), try_gpu(10), try_all_gpus())

x = torch.tensor([1, 2, 3])
print(x.device)
X = torch.ones(2, 3, device=try_gpu())
print(X)
torch.manual_seed(0)
Y = torch.rand(2, 3, device=try_gpu(1))
print(Y.device, Y.shape, Y.dtype)

try:
    print(X + Y)
except RuntimeError as error:
    print(str(error).split("\n")[0])
Z = X.cuda(1)
print(X)
print(Z)
print((Y + Z).device)
print(Z.cuda(1) is Z)

net = nn.Sequential(nn.LazyLinear(1))
net = net.to(device=try_gpu())
print(net(X).device)
print(net[0].weight.data.device)
print(f"{X.device} {X.device!r} {X.device.type} {X.device.index}", X.is_cuda, X.type(), X.get_device())
print(X.device == torch.device("cuda", 0), X.device == Z.device, {X.device: 1}[torch.device("cuda:0")])
print(isinstance(X.device, torch.device), isinstance(X, torch.Tensor), type(X))
print(X.sum().item(), X.tolist(), X.cpu().numpy())
try:
    X.numpy()
except TypeError as error:
    print(error)
