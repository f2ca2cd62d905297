"""Static programs that train on a GPU, with batch normalization."""

import numpy as np
import paddle
from paddle import nn
from paddle.nn.functional import mse_loss

features = np.linspace(-1, 1, 32, dtype="float32").reshape(8, 4)
kernel = np.linspace(-1, 1, 16, dtype="float32").reshape(4, 4) ** 2
targets = (features**2).sum(1, keepdims=True)
paddle.enable_static()
paddle.seed(0)


def train(make, place):
    """Print the losses of three steps, and a weight."""
    program, startup = paddle.static.Program(), paddle.static.Program()
    scope = paddle.static.Scope()
    with paddle.static.program_guard(program, startup), paddle.static.scope_guard(scope):
        x = paddle.static.data("x", [None, 4], "float32")
        y = paddle.static.data("y", [None, 1], "float32")
        weight = paddle.ParamAttr(name=f"weight_{make.__name__}", initializer=nn.initializer.Assign(kernel))
        hidden = nn.BatchNorm1D(4)(paddle.static.nn.fc(x, 4, weight_attr=weight))
        loss = mse_loss(hidden.sum(1, keepdim=True), y)
        make(0.05).minimize(loss)
        executor = paddle.static.Executor(place)
        executor.run(startup)
        feed = {"x": features, "y": targets}
        losses = [executor.run(program, feed=feed, fetch_list=[loss])[0] for _ in range(3)]
        trained = np.asarray(scope.find_var(weight.name).get_tensor())
        print(make.__name__, [round(float(each), 3) for each in losses], np.round(trained[0, 0], 3))


for optimizer in (paddle.optimizer.SGD, paddle.optimizer.Momentum, paddle.optimizer.Adam):
    train(optimizer, paddle.CUDAPlace(1))
train(paddle.optimizer.RMSProp, "gpu:0")
