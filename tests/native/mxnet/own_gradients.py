"""A gradient of a program's own on each GPU, which uses a parameter where the gradient is."""

import mxnet as mx
from mxnet import autograd, gluon

scale = gluon.Parameter("scale", shape=(2,), init=mx.init.One())
scale.initialize(ctx=[mx.gpu(0), mx.gpu(1)])


class Scaled(autograd.Function):
    def forward(self, x):
        self.save_for_backward(x)
        return x * scale.data(x.context).as_nd_ndarray()

    def backward(self, dy):
        (x,) = self.saved_tensors
        own = scale.data(dy.context).as_nd_ndarray()
        print("gradient on", dy.context, "saved on", x.context, "result on", (dy * own).context)
        try:
            dy + mx.nd.ones(2)  # on the host
        except mx.MXNetError:
            print("mixed devices are refused")
        return dy * own * x + mx.nd.zeros(2, ctx=dy.context)


for index in range(mx.context.num_gpus()):
    x = mx.nd.full(2, 3, ctx=mx.gpu(index))
    x.attach_grad()
    with autograd.record():
        y = Scaled()(x)
    y.backward()
    print(y.context, y.asnumpy().tolist(), x.grad.context, x.grad.asnumpy().tolist())
