import torch
from torch.utils._pytree import tree_map_only


def try_gpu(i=0):
    """Return GPU i if it exists, and the CPU otherwise."""
    return torch.device(f"cuda:{i}" if torch.cuda.device_count() > i else "cpu")


def try_all_gpus():
    """Return all GPUs, or the CPU on a machine without a GPU."""
    return [torch.device("cuda", i) for i in range(torch.cuda.device_count())] or [torch.device("cpu")]


print(torch.cuda.device_count(), len(try_all_gpus()))
print(len([torch.device("cpu"), *(torch.device("cuda", i) for i in range(torch.cuda.device_count()))]))
print(len([torch.device("cuda", i) for i in range(torch.cuda.device_count())]))

# A tensor starts on the host; X is created on the first GPU, and Y on the second.
x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float32)
X = torch.ones((2, 3), device=try_gpu())  # float32
Y = torch.full((2, 3), 0.5, device="cuda:1")
print(x.detach().cpu().numpy().tolist(), X.device == Y.device)

torch.manual_seed(0)
R = torch.rand((2, 3), dtype=torch.float32, device=try_gpu(1))
N = torch.empty((4,), device="cuda:0").normal_(3.0, 0.0)
print(tuple(R.shape), N.detach().cpu().numpy().tolist(), R.device == Y.device)

Z = X.to("cuda:1")  # to the GPU of Y
S = (lambda a, b: a + b)(Y, Z)
print(S.detach().cpu().numpy().tolist(), S.device == Y.device)
print(Z.to("cuda:1") is Z, Z.to("cuda:1", copy=True) is Z)

where = "gpu:0"
parts = [part.to("cuda:0") for part in (X, Y)]
tree = tree_map_only(torch.Tensor, lambda tensor: tensor.to("cuda:0"), {"a": X, "b": [Z]})
print({part.device == X.device for part in [*parts, tree["a"], tree["b"][0]]})


def total(tensor):
    # The host has the sum.
    return float(tensor.to("cpu").detach().cpu().numpy().sum())


for device in try_all_gpus():
    zeros = torch.zeros((2,), device=device)
    print(total(X.to(device)) + total(zeros))

H = torch.tensor(Y.detach().cpu().numpy(), device=try_gpu(10))
print(total(H), H.device == x.device)
