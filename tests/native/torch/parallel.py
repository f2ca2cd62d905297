"""Two cards: DataParallel, a model split by hand, threads, and streams of batches to other processes."""

import copy
import pickle
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8).to("cuda:0"), nn.Linear(8, 2).to("cuda:1")

    def forward(self, x):
        return self.second(torch.relu(self.first(x.to("cuda:0"))).to("cuda:1"))


def work(index, results):
    torch.cuda.set_device(index)
    results[index] = (torch.ones(2, device="cuda") * index, torch.cuda.current_device())


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Linear(4, 2).cuda()
    wrapped = nn.DataParallel(net, device_ids=[0, 1])
    x = torch.randn(6, 4, device="cuda")
    out = wrapped(x)
    print(out.device, torch.allclose(out, net(x)), wrapped.device_ids)
    out.sum().backward()
    print(net.weight.grad.device)

    model = Split()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = None
    for _ in range(20):
        optimizer.zero_grad()
        loss = (model(torch.ones(3, 4)) ** 2).mean()
        loss.backward()
        optimizer.step()
        first = first or loss.item()
    print(loss.device, loss.item() < first, {str(p.device) for p in model.parameters()} == {"cuda:0", "cuda:1"})

    results = {}
    threads = [threading.Thread(target=work, args=(i, results)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(results[0], results[1], torch.cuda.current_device())

    print(copy.deepcopy(model).second.weight.device, pickle.loads(pickle.dumps(torch.ones(2, device="cuda:1"))))
    for context in ("fork", "spawn"):
        loader = DataLoader(torch.arange(4.0), 2, num_workers=1, pin_memory=True, multiprocessing_context=context)
        print([batch.to("cuda:1") for batch in loader])
    compiled = torch.compile(nn.Linear(4, 4).cuda(1))
    print(compiled(torch.ones(2, 4, device="cuda:1")).device)
    try:
        torch.multiprocessing.reductions.reduce_tensor(torch.ones(2, device="cuda:1"))
    except NotImplementedError as error:
        print(str(error).split("\n")[0])
