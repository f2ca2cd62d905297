"""Layers in float16, and automatic mixed precision: single operators and hybridized blocks."""

import warnings

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

warnings.simplefilter("ignore")
IS_2 = hasattr(mx, "Device")
if IS_2:
    mx.npx.set_np()
    from mxnet import amp
else:
    from mxnet.contrib import amp
xp = mx.np if IS_2 else mx.nd
gpu = mx.gpu(1)
rng = np.random.default_rng(0)


def device_of(x):
    return str(x.device if IS_2 else x.context)


def make_cnn():
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(4, 3, activation="relu"), gluon.nn.BatchNorm(), gluon.nn.MaxPool2D(),
        gluon.nn.Conv2DTranspose(2, 3), gluon.nn.Flatten(), gluon.nn.LayerNorm(), gluon.nn.Dense(3),
    )  # fmt: skip
    return net, (4, 2, 8, 8)


def make_lstm():
    return gluon.rnn.LSTM(4, num_layers=2, bidirectional=True), (3, 2, 5)


def run(net, x):
    """Return the result, and the gradients of the argument and of a parameter."""
    x.attach_grad()
    with autograd.record():
        y = net(x)
        loss = (y * y).mean()
    loss.backward()
    parameter = next(each for each in net.collect_params().values() if each.grad_req != "null")
    return y, x.grad, parameter.grad(gpu)


for make in (make_cnn, make_lstm):
    net, shape = make()
    net.initialize(ctx=gpu)
    x = xp.array(rng.random(shape), dtype="float16", ctx=gpu)
    net(x.astype("float32"))
    net.cast("float16")
    before = []
    for hybridized in (False, True):
        if hybridized:
            net.hybridize()
        found = run(net, x)
        print(make.__name__, [np.dtype(each.dtype).name for each in found], {device_of(each) for each in found})
        halves = [each.asnumpy().astype("float32") for each in found]
        if hybridized:
            print(all(np.allclose(one, other, atol=1e-3) for one, other in zip(halves, before, strict=True)))
        before = halves
    net.cast("float32")
    expected = [each.asnumpy() for each in run(net, x.astype("float32"))]
    print(all(np.allclose(one, other, rtol=0.05, atol=0.02) for one, other in zip(halves, expected, strict=True)))

half = xp.array(rng.random((3, 3)), dtype="float16", ctx=gpu)
out = xp.zeros((3, 3), dtype="float16", ctx=gpu)
xp.dot(half, half, out=out)
print(np.allclose(out.asnumpy(), half.asnumpy() @ half.asnumpy(), atol=1e-2), device_of(out))

amp.init()
images, labels = xp.array(rng.random((4, 2, 6, 6)), ctx=gpu), xp.array([0, 1, 2, 0], ctx=gpu)
for hybridized in (False, True):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(4, 3), gluon.nn.BatchNorm(), gluon.nn.Activation("relu"), gluon.nn.Dense(3))
    net.initialize(ctx=gpu)
    if hybridized:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    amp.init_trainer(trainer)
    loss_of, losses = gluon.loss.SoftmaxCrossEntropyLoss(), []
    for _ in range(8):
        with autograd.record():
            scores = net(images)
            loss = loss_of(scores, labels)
            with amp.scale_loss(loss, trainer) as scaled:
                autograd.backward(scaled)
        trainer.step(4)
        losses.append(loss.asnumpy().mean())
    print(np.dtype(scores.dtype).name, np.dtype(loss.dtype).name, losses[-1] < losses[0])
