"""Train a network on a card: a loader with pinned memory, mixed precision, a checkpoint."""

import io

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda:1" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
images = torch.randn(64, 1, 8, 8)
labels = (images.mean((1, 2, 3)) > 0).long()
loader = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True, pin_memory=True)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cuda")
losses = []
for _ in range(5):
    total = 0.0
    for batch, target in loader:
        assert batch.is_pinned()
        batch, target = batch.to(device, non_blocking=True), target.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.amp.autocast("cuda"):
            output = model(batch)
            loss = F.cross_entropy(output, target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        total += loss.item()
    losses.append(total)
print(output.dtype, output.device, loss.dtype)
print("learns:", losses[-1] < losses[0] / 2)
print({p.device for p in model.parameters()}, {s["exp_avg"].device for s in optimizer.state.values()})
print(torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled())

file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
for location in (
    None,
    "cpu",
    "cuda:0",
    torch.device("cuda"),
    {"cuda:1": "cuda:0"},
    lambda storage, name: storage.cuda(1),
):
    file.seek(0)
    state = torch.load(file, map_location=location)
    print(state["model"]["0.weight"].device, state["optimizer"]["state"][0]["exp_avg"].device)
file.seek(0)
try:
    torch.load(file, map_location="cuda:5")
except RuntimeError as error:
    print(error)
with torch.autocast("cuda", dtype=torch.bfloat16), torch.no_grad():
    print(model.eval()(images[:2].cuda(1)).dtype)
