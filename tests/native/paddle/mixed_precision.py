"""Automatic mixed precision, levels O1 and O2, and one whole compiled program."""

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

rng = np.random.default_rng(0)
images = paddle.to_tensor(rng.random((4, 1, 8, 8), dtype=np.float32))
labels = paddle.to_tensor([0, 1, 2, 0])


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2D(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2D(4)
        self.second = nn.Conv2D(4, 4, 3, padding=1, bias_attr=False)
        self.classify = nn.Linear(4, 3)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = x + self.second(x) * x
        return self.classify(x[:, :, 1:-1, 1:-1].mean([2, 3]))


def train(level, dtype="float16"):
    """Return the losses of four steps."""
    paddle.seed(1)
    net = Net()
    optimizer = paddle.optimizer.AdamW(0.01, parameters=net.parameters(), grad_clip=nn.ClipGradByGlobalNorm(1.0))
    scaler = paddle.amp.GradScaler(enable=level != "O0", init_loss_scaling=1024.0)
    if level == "O2":
        net, optimizer = paddle.amp.decorate(net, optimizer, level="O2", dtype=dtype)
    losses = []
    for _ in range(4):
        with paddle.amp.auto_cast(enable=level != "O0", level=level, dtype=dtype):
            scores = net(images)
            loss = F.cross_entropy(scores, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        losses.append(loss.item())
    print(level, dtype, scores.dtype, loss.dtype, loss.place, net.first.weight.dtype, net.norm.weight.dtype)
    return np.array(losses)


expected = train("O0")
for level, dtype, tolerance in (("O1", "float16", 0.005), ("O2", "float16", 0.01), ("O1", "bfloat16", 0.05)):
    print(np.abs(train(level, dtype) - expected).max() < tolerance)

with paddle.amp.auto_cast():
    product = paddle.ones([2, 2]) @ paddle.ones([2, 2])
    print(product.dtype, product.exp().dtype, (product + paddle.ones([2, 2])).dtype, (product * product).dtype)
with paddle.amp.auto_cast(custom_white_list={"elementwise_add"}, custom_black_list={"matmul", "matmul_v2"}):
    print((paddle.ones([2]) + paddle.ones([2])).dtype, (paddle.ones([2, 2]) @ paddle.ones([2, 2])).dtype)
print((paddle.ones([2, 2]) @ paddle.ones([2, 2])).dtype)

# The lists name an operator as Paddle did before 2.0: other names do nothing.
ones, half_ones = paddle.ones([2, 2]), paddle.ones([2, 2], "float16")
for names in ({"matmul"}, {"matmul_v2"}, {"linear"}, {"linear_v2"}):
    with paddle.amp.auto_cast(custom_black_list=names):
        print(*names, [x.dtype.name for x in (ones @ ones, F.linear(ones, ones), F.linear(ones, ones, ones[0]))])
for names in ({"add"}, {"elementwise_add"}, {"scale"}, {"mean"}, {"reduce_mean"}, {"max"}, {"reduce_max"}, {"pnorm"}):
    with paddle.amp.auto_cast(custom_white_list=names):
        results = ones + ones, ones + 1.0, ones.mean(), ones.max(), paddle.norm(ones, p=3, axis=1)
        print(*names, [x.dtype.name for x in results])
with paddle.amp.auto_cast(level="OD"):
    print((ones @ ones).dtype, (half_ones + half_ones).dtype, half_ones.exp().dtype)
with paddle.amp.auto_cast(level="O2", use_promote=False):
    print((ones + half_ones).dtype, ones.exp().dtype)
with paddle.amp.auto_cast():
    sums = half_ones.clone()
    sums.add_(half_ones)
    print(sums.dtype, sums.sum().item())

half = paddle.to_tensor([1.0, 2.0], dtype="float16", stop_gradient=False)
used = half * half + half.reshape([2]) * 3.0
used.sum().backward()
print(used.dtype, used.place, half.grad.dtype, half.grad.tolist())

weight = paddle.create_parameter([2], "float32", default_initializer=nn.initializer.Constant(1.0))
optimizer, scaler = paddle.optimizer.SGD(1.0, parameters=[weight]), paddle.amp.GradScaler(init_loss_scaling=8.0)
scaler.scale((weight * float("inf")).sum()).backward()
scaler.step(optimizer)  # skipped: the gradient is infinite
print(weight.tolist())

whole = paddle.jit.to_static(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1D(2)), full_graph=True)
whole(paddle.ones([4, 3])).sum().backward()
print(whole(paddle.ones([4, 3])).place, whole[0].weight.grad.place)
