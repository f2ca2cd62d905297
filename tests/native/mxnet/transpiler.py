import mxnet as mx

mx.npx.set_np()


def try_gpu(i=0):
    """Return GPU i if it exists, and the CPU otherwise."""
    return mx.gpu(i) if mx.context.num_gpus() > i else mx.cpu()


def try_all_gpus():
    """Return all GPUs, or the CPU on a machine without a GPU."""
    return [mx.gpu(i) for i in range(mx.context.num_gpus())] or [mx.cpu()]


def place_tree(tree, device):
    """Return a dict, list or tuple of arrays with each array on a device."""
    if isinstance(tree, dict):
        return {key: place_tree(value, device) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(place_tree(value, device) for value in tree)
    return tree.as_in_ctx(device)


print(mx.context.num_gpus(), len(try_all_gpus()))
print(len([mx.cpu(), *(mx.gpu(i) for i in range(mx.context.num_gpus()))]))
print(len([mx.gpu(i) for i in range(mx.context.num_gpus())]))

# A tensor starts on the host; X is created on the first GPU, and Y on the second.
x = mx.np.array([1.0, 2.0, 3.0], dtype="float32")
X = mx.np.ones((2, 3), ctx=try_gpu())  # float32
Y = mx.np.full((2, 3), 0.5, ctx=mx.gpu(1))
print(x.asnumpy().tolist(), X.ctx == Y.ctx)

mx.random.seed(0)
R = mx.np.random.uniform(size=(2, 3), dtype="float32", ctx=try_gpu(1))
N = mx.np.random.normal(3.0, 0.0, (4,), ctx=mx.gpu(0))
print(tuple(R.shape), N.asnumpy().tolist(), R.ctx == Y.ctx)

Z = X.as_in_ctx(mx.gpu(1))  # to the GPU of Y
S = (lambda a, b: a + b)(Y, Z)
print(S.asnumpy().tolist(), S.ctx == Y.ctx)
print(Z.as_in_ctx(mx.gpu(1)) is Z, Z.copyto(mx.gpu(1)) is Z)

where = "gpu:0"
parts = [part.as_in_ctx(mx.gpu(0)) for part in (X, Y)]
tree = place_tree({"a": X, "b": [Z]}, mx.gpu(0))
print({part.ctx == X.ctx for part in [*parts, tree["a"], tree["b"][0]]})


def total(tensor):
    # The host has the sum.
    return float(tensor.as_in_ctx(mx.cpu()).asnumpy().sum())


for device in try_all_gpus():
    zeros = mx.np.zeros((2,), ctx=device)
    print(total(X.as_in_ctx(device)) + total(zeros))

H = mx.np.array(Y.asnumpy(), dtype=Y.asnumpy().dtype, ctx=try_gpu(10))
print(total(H), H.ctx == x.ctx)
