"""Plans of `Placement.balanced` compared with accelerate's `infer_auto_device_map`, for the same models and budgets.

``python tests/backends/torch/test_models_plans.py`` prints the table of docs/guides/placement.md; a test compares
the page with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import devshim as ds

accelerate = pytest.importorskip("accelerate")
from accelerate.utils import get_balanced_memory  # noqa: E402  # after accelerate itself, which may be absent

nn = torch.nn
PAGE = Path(__file__).parents[3] / "docs" / "guides" / "placement.md"
SIMULATED = ("gpu:0", "gpu:1")
WHO = ("devshim", "accelerate", "accelerate, balanced")


# ---------------------------------------------------------------------- what is planned
class Tied(nn.Module):
    """A language model whose last layer computes with the weight of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, 32)
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)) for _ in range(4)))
        self.head = nn.Linear(32, 256)
        self.head.weight = self.embed.weight

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(self.embed(x)))


def mlp() -> Any:
    return nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.ReLU())))


def encoder() -> Any:
    layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(32, 32), nn.TransformerEncoder(layer, 5, enable_nested_tensor=False))


def uneven() -> Any:
    widths = (32, 256, 16, 16, 16, 128, 32)
    return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths)))


def floats() -> Any:
    return torch.linspace(-1, 1, 3 * 5 * 32).reshape(3, 5, 32)


def words() -> Any:
    return torch.arange(15).reshape(3, 5)


@dataclass(frozen=True)
class Case:
    """A model, the budgets of two GPUs as shares of its bytes, and the classes whose instances must not be split."""

    make: Callable[[], Any]
    budgets: tuple[float, ...]
    data: Callable[[], Any] = floats
    no_split: tuple[str, ...] = ()

    def bytes_of(self, model: Any) -> list[int]:
        total = sum(x.nbytes for x in [*model.parameters(), *model.buffers()])
        return [int(share * total) for share in self.budgets]


CASES = {
    "MLP, ample budgets": Case(mlp, (0.9, 0.9)),
    "MLP, tight budgets": Case(mlp, (0.5, 0.5)),
    "tied embedding": Case(Tied, (0.9, 0.9), words),
    "encoder": Case(encoder, (0.9, 0.9), no_split=("TransformerEncoderLayer",)),
    "encoder, small first card": Case(encoder, (0.45, 0.8), no_split=("TransformerEncoderLayer",)),
    "uneven layers": Case(uneven, (0.8, 0.8)),
    "MLP, too large": Case(mlp, (0.4, 0.4)),
}
FITS = [name for name in CASES if name != "MLP, too large"]


# ---------------------------------------------------------------------- the plans
def ours(model: Any, case: Case) -> dict[str, str]:
    plan = ds.Placement.balanced(model, SIMULATED, case.bytes_of(model))
    return {path: str(device) for path, device in plan.items()}


def theirs(model: Any, case: Case, balanced: bool = False) -> dict[str, str]:
    """Return the device map for each leaf; balanced like ``device_map="balanced"``."""
    budgets: dict[Any, Any] = dict(enumerate(case.bytes_of(model)))
    if balanced:
        budgets = get_balanced_memory(model, budgets, list(case.no_split))
    found = accelerate.infer_auto_device_map(model, budgets, list(case.no_split))
    named = {path: device if isinstance(device, str) else f"gpu:{device}" for path, device in found.items()}
    above = {path: next(key for key in named if f"{path}.".startswith(f"{key}.")) for path in model.state_dict()}
    return {path: named[key] for path, key in above.items()}


def plans(model: Any, case: Case) -> dict[str, dict[str, str]]:
    return dict(zip(WHO, (ours(model, case), theirs(model, case), theirs(model, case, True)), strict=True))


@dataclass(frozen=True)
class Measured:
    """The properties of a plan."""

    loads: tuple[int, ...]
    elsewhere: int
    """Bytes that are on no GPU."""
    crossings: int
    """The number of times that a layer runs on another device than the one before it."""
    cut: int
    """Blocks that are on several devices."""
    apart: int
    """Tied weights of which two names are on different devices."""

    @property
    def share(self) -> float:
        """Return the share of the fullest GPU in all bytes that are on GPUs."""
        return max(self.loads) / sum(self.loads)


def measured(model: Any, case: Case, plan: dict[str, str]) -> Measured:
    tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    assert plan.keys() == tensors.keys(), "every leaf is planned, and nothing else"
    names: dict[int, list[str]] = {}
    for path, x in tensors.items():
        names.setdefault(id(x), []).append(path)
    loads = dict.fromkeys((*SIMULATED, "disk"), 0)
    for paths in names.values():
        loads[plan[paths[0]]] += tensors[paths[0]].nbytes
    ran = [plan[path] for path in order(model, case)]
    return Measured(
        loads=tuple(loads[card] for card in SIMULATED),
        elsewhere=loads["disk"],
        crossings=sum(a != b for a, b in pairwise(ran)),
        cut=sum(
            len({device for path, device in plan.items() if path.startswith(f"{name}.")}) > 1
            for name, module in model.named_modules()
            if type(module).__name__ in case.no_split
        ),
        apart=sum(len({plan[path] for path in paths}) > 1 for paths in names.values()),
    )


def order(model: Any, case: Case) -> list[str]:
    """Return the first weight of each layer, in the order in which the layers run."""
    ran: list[str] = []
    hooks = []
    for name, module in model.named_modules():
        own = next(iter(dict(module.named_parameters(recurse=False))), None)
        if own is not None:
            hooks.append(module.register_forward_hook(lambda *_, path=f"{name}.{own}": ran.append(path)))
    model(case.data())
    for hook in hooks:
        hook.remove()
    return ran


# ---------------------------------------------------------------------- the tests
@pytest.fixture(autouse=True)
def _seeded(two_cards: None) -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("name", FITS)
def test_our_plan_is_valid_and_no_worse(name: str) -> None:
    case = CASES[name]
    model = case.make()
    found = {who: measured(model, case, plan) for who, plan in plans(model, case).items()}
    mine = found.pop("devshim")
    assert (mine.elsewhere, mine.cut, mine.apart) == (0, 0, 0)
    assert all(load <= cap for load, cap in zip(mine.loads, case.bytes_of(model), strict=True))
    for other in found.values():
        assert (other.cut, other.apart) == (0, 0), "what is compared is a plan, too"
        assert mine.elsewhere <= other.elsewhere
        if not other.elsewhere:
            assert mine.crossings <= other.crossings
            fullest = [max(a / b for a, b in zip(each.loads, case.budgets, strict=True)) for each in (mine, other)]
            assert fullest[0] <= fullest[1], "the fullest card, for its budget"


@pytest.mark.parametrize("name", FITS)
def test_both_plans_are_placements_that_run(name: str) -> None:
    case = CASES[name]
    model = case.make()
    expected = model(case.data())
    for who, plan in plans(model, case).items():
        if "disk" in plan.values():
            with pytest.raises(ds.DeviceSpecError, match="disk"):
                ds.Placement(plan)
            continue
        ds.place(model, ds.Placement(plan))
        result = ds.place(model(ds.place(case.data(), plan[next(iter(plan))])), "cpu")
        assert torch.equal(result, expected), who
        ds.place(model, "cpu")


def test_a_model_that_does_not_fit_is_an_error_and_accelerate_offloads_it() -> None:
    case = CASES["MLP, too large"]
    model = case.make()
    with pytest.raises(ds.OutOfMemoryError, match="does not fit on these devices"):
        ours(model, case)
    assert measured(model, case, theirs(model, case)).elsewhere > 0
    spilled = ds.Placement.balanced(model, [*SIMULATED, "cpu"], dict(zip(SIMULATED, case.bytes_of(model), strict=True)))
    assert ds.cpu() in spilled.devices, "a device that is named takes the rest"


def test_a_meta_model_gets_the_same_plan() -> None:
    case = CASES["encoder"]
    model = case.make()
    with torch.device("meta"):
        bare = case.make()
    assert ours(bare, case) == ours(model, case)


def test_the_page_shows_these_numbers() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


# ---------------------------------------------------------------------- the table
def table() -> str:
    """Return the lines of the page."""
    lines = [
        "| model, budgets | plan | bytes on the cards | crossings | fullest | on no card |",
        "|---|---|---|---|---|---|",
    ]
    for name, case in CASES.items():
        model = case.make()
        shares = " and ".join(f"{share:.0%}" for share in case.budgets)
        first = f"{name} ({shares})"
        for who, plan in (plans(model, case) if name in FITS else {"accelerate": theirs(model, case)}).items():
            if name not in FITS:
                lines.append(f"| {first} | devshim | refused: `OutOfMemoryError` | | | |")
                first = ""
            lines.append(f"| {first} | {who} | {row(measured(model, case, plan))} |")
            first = ""
    return "\n".join(lines)


def row(found: Measured) -> str:
    loads = " + ".join(f"{load:,}" for load in found.loads)
    return f"{loads} | {found.crossings} | {found.share:.0%} | {found.elsewhere:,}"


if __name__ == "__main__":
    ds.use("torch")
    print(table())
