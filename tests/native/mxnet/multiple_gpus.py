"""Gluon on two GPUs: initialize on both, split the batch, record on each part, one step of the trainer for all."""

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, npx
from mxnet.gluon import nn

npx.set_np()
gpus = [mx.gpu(i) for i in range(npx.num_gpus())]
print(gpus)
mx.random.seed(0)
net = nn.HybridSequential()
net.add(nn.Dense(8, activation="relu", in_units=3), nn.Dense(1, in_units=8))
net.initialize(mx.init.Xavier(), ctx=gpus)
net.hybridize()
print(net[0].weight.list_ctx(), net[0].weight.data(gpus[1]).ctx)
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9}, kvstore="device")
criterion = gluon.loss.L2Loss()
rng = np.random.default_rng(0)
features = rng.normal(size=(64, 3)).astype("float32")
labels = features @ np.array([[1.0], [-2.0], [3.0]], "float32")
data = gluon.data.DataLoader(gluon.data.ArrayDataset(features, labels), batch_size=16)
history = []
for _ in range(4):
    total = 0.0
    for x, y in data:
        xs, ys = gluon.utils.split_and_load(x, gpus), gluon.utils.split_and_load(y, gpus)
        with autograd.record():
            losses = [criterion(net(part), target) for part, target in zip(xs, ys, strict=True)]
        autograd.backward(losses)
        trainer.step(x.shape[0])
        total += sum(float(loss.sum().as_in_ctx(mx.cpu())) for loss in losses)
    history.append(total / 64)
print([part.ctx for part in xs], [loss.ctx for loss in losses], history[-1] < history[0])
weights = [net[0].weight.data(gpu).asnumpy() for gpu in gpus]
print(np.allclose(*weights), net[0].weight.grad(gpus[0]).ctx)
net.save_parameters("net.params")
other = nn.HybridSequential()
other.add(nn.Dense(8, activation="relu", in_units=3), nn.Dense(1, in_units=8))
other.load_parameters("net.params", ctx=mx.gpu(1))
print(other(xs[1]).ctx, np.allclose(other(xs[1]).asnumpy(), net(xs[1]).asnumpy()))
before, total = mx.context.gpu_memory_info(1)
kept = mx.np.ones((256, 1024), ctx=mx.gpu(1))
print(before - mx.context.gpu_memory_info(1)[0])
