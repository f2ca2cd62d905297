"""Run with CUDA_VISIBLE_DEVICES=-1: a build for CUDA shows no GPU, and computes on the CPU."""

import mxnet as mx
from mxnet import autograd, gluon


def fails(call):
    """Return the first line of MXNet's error."""
    try:
        return call()
    except mx.MXNetError as error:
        return str(error).splitlines()[0]


print(mx.context.num_gpus(), mx.runtime.Features().is_enabled("CUDA"), mx.gpu(0))
for call in (
    lambda: mx.nd.ones(1, ctx=mx.gpu(0)),
    lambda: mx.np.ones(1, ctx=mx.gpu(0)),
    lambda: mx.nd.array([1], ctx=mx.gpu(1)),
    lambda: mx.nd.ones(1).copyto(mx.gpu(0)),
    lambda: mx.context.gpu_memory_info(0),
    lambda: mx.random.seed(1, ctx=mx.gpu(0)),
):
    print(fails(call))
ctx = mx.gpu() if mx.context.num_gpus() else mx.cpu()
net = gluon.nn.Dense(1)
net.initialize(ctx=ctx)
trainer = gluon.Trainer(net.collect_params(), "sgd")
arrays = mx.np if hasattr(mx, "Device") else mx.nd  # layers of MXNet 2.0 take only these
with autograd.record():
    loss = net(arrays.ones((1, 2), ctx=ctx)).sum()
loss.backward()
trainer.step(1)
print(loss.ctx, mx.nd.ones(2, ctx=ctx).asnumpy().tolist(), mx.random.seed(1))
