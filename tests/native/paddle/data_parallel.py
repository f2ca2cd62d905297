"""A data-parallel program in one process, as `paddle.distributed` runs it there, and layers on both GPUs."""

import numpy as np
import paddle
from paddle import nn

print(paddle.device.cuda.device_count(), paddle.distributed.get_world_size(), paddle.distributed.get_rank())
paddle.seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
model = paddle.DataParallel(model)
optimizer = paddle.optimizer.Adam(0.05, parameters=model.parameters())
scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0)
rng = np.random.default_rng(0)
features = rng.normal(size=(64, 3)).astype("float32")
labels = features @ np.array([[1.0], [-2.0], [3.0]], "float32")


class Rows(paddle.io.Dataset):
    def __len__(self):
        return len(features)

    def __getitem__(self, index):
        return features[index], labels[index]


loader = paddle.io.DataLoader(Rows(), batch_size=16, shuffle=False)
history = []
for _ in range(5):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
    history.append(float(loss))
print(x.place, loss.place, model.parameters()[0].place, history[-1] < history[0])

second = nn.Linear(3, 1).to("gpu:1")
result = second(paddle.to_tensor(features[:4]).cuda(1))
print(result.place, result.shape, paddle.device.cuda.memory_allocated(1) > 0)
paddle.set_device("gpu:1")
print(paddle.ones([1]).place, paddle.device.cuda.current_stream().query())
paddle.set_device("cpu")
print(paddle.ones([1]).place, paddle.get_device())
