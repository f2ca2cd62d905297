"""Errors of a program on GPUs: a GPU that is not there, two GPUs in one operator, too little memory."""

import mxnet as mx
from mxnet import np, npx
from mxnet.gluon import nn

npx.set_np()
print(mx.gpu(7))
for call in (
    lambda: np.ones(3, ctx=mx.gpu(7)),
    lambda: np.ones(3).as_in_ctx(mx.gpu(2)),
    lambda: mx.random.seed(1, ctx=mx.gpu(2)),
    lambda: mx.context.gpu_memory_info(2),
    lambda: np.ones(3, ctx=mx.gpu(0)) + np.ones(3, ctx=mx.gpu(1)),
    lambda: np.ones(3, ctx=mx.gpu(0)) + np.ones(3),
    lambda: np.ones(10_000_000, ctx=mx.gpu(0)),
):
    try:
        call()
    except mx.MXNetError as error:
        print(str(error).splitlines()[0])
net = nn.Dense(2, in_units=3)
net.initialize(ctx=mx.gpu(0))
try:
    net(np.ones((1, 3), ctx=mx.gpu(1)))
except RuntimeError as error:
    print(str(error).replace(net.weight.name, "weight").splitlines()[0])
try:
    np.ones(3, ctx=mx.gpu(0)) + np.ones(3, ctx=mx.gpu(1))
except mx.MXNetError as error:
    print("mx.gpu(0)" in str(error), "ds." in str(error))
print(np.ones(3, ctx=mx.gpu(1)).sum())
