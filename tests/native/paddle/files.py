"""Files and copies of tensors on GPUs: state dicts, loading on another device, NumPy, and a second optimizer."""

import copy
import os
import tempfile

import numpy as np
import paddle
from paddle import nn

paddle.seed(1)
paddle.set_device("gpu:1")
net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1D(4), nn.Linear(4, 2))
optimizer = paddle.optimizer.Momentum(0.1, parameters=net.parameters())
x = paddle.randn([8, 4])
net(x).sum().backward()
optimizer.step()
print(net[0].weight.place, net[0].weight.grad.place, x.place)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "net")
    paddle.save(net.state_dict(), path + ".pdparams")
    paddle.save(optimizer.state_dict(), path + ".pdopt")
    other = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1D(4), nn.Linear(4, 2))
    other.set_state_dict(paddle.load(path + ".pdparams"))
    second = paddle.optimizer.Momentum(0.1, parameters=other.parameters())
    second.set_state_dict(paddle.load(path + ".pdopt"))
net.eval()
other.eval()
print(np.array_equal(net(x).numpy(), other(x).numpy()), other(x).place)
y = x.cuda(0)
print(y.place, x.cpu().place, copy.deepcopy(x).place, y.to("gpu:1").place, x.cuda(1) is x)
print(paddle.to_tensor(x.numpy()).place, paddle.zeros_like(y).place, (y * 2).place)
paddle.set_device("gpu:0")
print(paddle.get_device(), paddle.rand([2]).place, bool((x.sum() == y.sum().cuda(1)).item()))
