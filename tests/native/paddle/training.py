"""Train a network on a GPU: by hand with a loader, by `paddle.Model`, with `DataParallel`, and as a static program."""

import numpy as np
import paddle
from paddle import nn

paddle.set_device("gpu:1")
paddle.seed(0)
features = np.arange(24, dtype="float32").reshape(8, 3) / 24
labels = features.sum(axis=1, keepdims=True)
dataset = paddle.io.TensorDataset([features, labels])


def train(net):
    optimizer = paddle.optimizer.Adam(0.05, parameters=net.parameters())
    losses = []
    for _ in range(30):
        for x, y in paddle.io.DataLoader(dataset, batch_size=4, places=paddle.CUDAPlace(1)):
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.append(float(loss))
    return x.place, loss.place, losses[-1] < losses[0] / 10


net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
print(train(net), net[0].weight.place)
trained = net
print(train(paddle.DataParallel(nn.Linear(3, 1))))

net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1D(8), nn.ReLU(), nn.Linear(8, 1))
net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
print(train(net)[:2], type(net[1]).__name__, float(net[1]._mean.sum()) != 0, net[1]._mean.place)
x = paddle.to_tensor(features)
print(bool((nn.SyncBatchNorm(3)(x) == nn.BatchNorm1D(3)(x)).all()))

model = paddle.Model(nn.Linear(3, 1))
model.prepare(paddle.optimizer.SGD(0.1, parameters=model.parameters()), nn.MSELoss())
model.fit(dataset, epochs=1, batch_size=4, verbose=0)
print(model.network.weight.place)

net = trained
paddle.save(net.state_dict(), "net.pdparams")
other = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
other.set_state_dict(paddle.load("net.pdparams"))
x = paddle.to_tensor(features)
print(bool((other(x) == net(x)).all()), other(x).place)

paddle.enable_static()
program = paddle.static.Program()
with paddle.static.program_guard(program):
    a = paddle.static.data("a", [2], "float32")
    doubled = a * 2
executor = paddle.static.Executor(paddle.CUDAPlace(0))
print(executor.run(program, feed={"a": np.ones(2, "float32")}, fetch_list=[doubled])[0])
print(paddle.static.cuda_places())
paddle.disable_static()
