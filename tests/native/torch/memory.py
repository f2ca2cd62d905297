"""Run with --memory 1MiB: a batch that does not fit raises PyTorch's own class of error."""

import torch

for name in ("torch.cuda.OutOfMemoryError", "torch.OutOfMemoryError", "RuntimeError"):
    try:
        torch.zeros(1 << 20, device="cuda:1")
    except eval(name) as error:
        print(name, "out of memory" in str(error))
batch = 1 << 12
while True:
    try:
        x = torch.zeros(batch, 1024, device="cuda:1")
        break
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        batch //= 2
print(batch, torch.cuda.mem_get_info(1)[1], torch.cuda.mem_get_info(1)[0] < 1 << 20)
