"""Train a network on all GPUs: split the batch, compute on each, and let the trainer add the gradients."""

import mxnet as mx
from mxnet import autograd, gluon, np, npx
from mxnet.gluon import nn

npx.set_np()
metrics = gluon.metric if hasattr(gluon, "metric") else mx.metric
devices = [mx.gpu(i) for i in range(mx.context.num_gpus())]


def train(kvstore, update_on_kvstore):
    net = nn.HybridSequential()
    net.add(nn.Dense(8, in_units=3, activation="relu"), nn.Dense(1, in_units=8))
    net.initialize(mx.init.Constant(0.1), ctx=devices)
    net.hybridize()
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.05}, kvstore=kvstore, update_on_kvstore=update_on_kvstore
    )
    loss = gluon.loss.L2Loss()
    features = np.arange(24).reshape(8, 3) / 24
    labels = features.sum(axis=1)
    first = None
    for _ in range(20):
        parts = gluon.utils.split_and_load(features, devices)
        answers = gluon.utils.split_and_load(labels, devices)
        with autograd.record():
            losses = [loss(net(part), answer) for part, answer in zip(parts, answers, strict=True)]
        for each in losses:
            each.backward()
        trainer.step(len(features))
        total = float(sum(float(each.sum()) for each in losses))
        first = total if first is None else first
    mx.nd.waitall()
    for metric in (metrics.MAE(), metrics.RMSE()):
        metric.update(answers, [net(part).reshape(-1) for part in parts])
        print(*metric.get()[:1], float(metric.get()[1]) < 0.5)
    weight = net[0].weight
    same = (weight.data(devices[0]).asnumpy() == weight.data(devices[1]).asnumpy()).all()
    print(kvstore, update_on_kvstore, [part.ctx for part in parts], weight.list_ctx(), bool(same), total < first / 2)
    return net


train("local", True)
train("local", False)
train("device", None)
train("nccl", None)
net = train("device", False)
net.save_parameters("net.params")
other = nn.HybridSequential()
other.add(nn.Dense(8, in_units=3, activation="relu"), nn.Dense(1, in_units=8))
other.load_parameters("net.params", ctx=mx.gpu(1))
print(other[0].weight.data().ctx, other(np.ones((1, 3), ctx=mx.gpu(1))).ctx)
