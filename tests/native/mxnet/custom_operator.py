"""A custom operator of a program on each GPU, with its gradient."""

import mxnet as mx
from mxnet import autograd


class Square(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        print("forward on", in_data[0].context, out_data[0].context, mx.context.current_context())
        self.assign(out_data[0], req[0], in_data[0] * in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        print("backward on", out_grad[0].context, in_grad[0].context, mx.context.current_context())
        self.assign(in_grad[0], req[0], out_grad[0] * 2 * in_data[0])


@mx.operator.register("own_square")
class SquareProp(mx.operator.CustomOpProp):
    def list_arguments(self):
        return ["data"]

    def list_outputs(self):
        return ["output"]

    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []

    def create_operator(self, ctx, in_shapes, in_dtypes):
        print("made for", ctx)
        return Square()


for index in range(mx.context.num_gpus()):
    x = mx.nd.full((2, 2), 3, ctx=mx.gpu(index))
    x.attach_grad()
    with autograd.record():
        y = mx.nd.Custom(x, op_type="own_square")
    y.backward()
    print(y.context, y.asnumpy().tolist(), x.grad.context, x.grad.asnumpy().tolist())
mx.nd.waitall()
