"""Workers of a `DataLoader` that get and return tensors of cards: they start with ``spawn``: CUDA refuses forks."""

import torch
from torch.utils.data import DataLoader


class Rows:
    def __init__(self, card):
        self.card = card

    def __len__(self):
        return 4

    def __getitem__(self, index):
        row = torch.full((2,), float(index), device=f"cuda:{self.card}")
        return {"row": row, "number": torch.tensor(index)}


class Stored:
    """A data set with its tensors on a card, some of which share memory."""

    def __init__(self, card):
        self.whole = torch.arange(12.0, device=f"cuda:{card}").view(4, 3)
        self.columns = [torch.nn.Parameter(self.whole[:, 0]), *self.whole.t()[1:]]
        self.bits = self.whole.view(torch.int32)[3]
        self.sparse = self.whole.to_sparse()
        self.empty = [torch.empty(0, device=f"cuda:{other}") for other in range(2)]

    def __len__(self):
        return 2

    def __getitem__(self, index):
        with torch.no_grad():
            self.whole += 1
        first, *_, last = self.columns
        return (
            [each.tolist() for each in (first, last, self.bits, self.sparse.to_dense()[0])],
            first.requires_grad,
            last + 0,
            [each.device for each in self.empty],
        )


def as_they_are(rows):
    """Return a view with gaps, a parameter, a sparse tensor and an empty one."""
    x = torch.stack([each["row"] for each in rows])
    weight = torch.nn.Parameter(x[0])
    return x.t()[:, ::2], weight, x.to_sparse(), x[:0]


if __name__ == "__main__":
    for card in range(2):
        for batch in DataLoader(Rows(card), batch_size=2, num_workers=2, multiprocessing_context="spawn"):
            print(batch["row"], batch["number"], batch["row"].get_device())
    loader = DataLoader(Rows(1), batch_size=4, num_workers=1, multiprocessing_context="spawn", collate_fn=as_they_are)
    for view, weight, sparse, empty in loader:
        print(view, view.stride())
        print(weight, sparse.sum().item(), empty)
    for found in DataLoader(Stored(1), batch_size=None, num_workers=1, multiprocessing_context="spawn"):
        print(*found)
