"""GPUs in a book's words: count them, choose one, put arrays and a network there."""

from mxnet import np, npx
from mxnet.gluon import nn

npx.set_np()


def try_gpu(i=0):
    return npx.gpu(i) if npx.num_gpus() >= i + 1 else npx.cpu()


def try_all_gpus():
    found = [npx.gpu(i) for i in range(npx.num_gpus())]
    return found or [npx.cpu()]


print(npx.cpu(), npx.gpu(), npx.gpu(1))
print(npx.num_gpus())
print(try_gpu(), try_gpu(10), try_all_gpus())

x = np.array([1, 2, 3])
print(x.ctx)
X = np.ones((2, 3), ctx=try_gpu())
print(X)
Y = np.full((2, 3), 0.5, ctx=try_gpu(1))
print(repr(Y))

Z = X.copyto(try_gpu(1))
print(X.ctx, Z.ctx)
print(Y + Z)
print(Z.as_in_ctx(try_gpu(1)) is Z)

net = nn.Sequential()
net.add(nn.Dense(1, in_units=3))
net.initialize(ctx=try_gpu())
print(net(X).ctx, net(X).shape)
print(net[0].weight.data().ctx)
with npx.gpu(1):
    print(np.zeros(2).ctx, np.random.normal(size=2).ctx, np.arange(3).ctx)
print(np.zeros(2).ctx)
