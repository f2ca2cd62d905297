"""The image patches of a vision transformer, and its training, with einops on a simulated GPU."""

from __future__ import annotations

import torch
from einops import rearrange, reduce, repeat
from einops.layers.torch import EinMix, Rearrange, Reduce

import devshim as ds


def attended(x: torch.Tensor) -> torch.Tensor:
    """Return self-attention over image patches."""
    tokens = rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2)
    start = repeat(reduce(tokens, "b n d -> d", "mean"), "d -> b 1 d", b=len(x))
    tokens = torch.cat([start, tokens], dim=1)
    q, k = (rearrange(tokens, "b n (heads d) -> b heads n d", heads=3) for _ in range(2))
    weights = torch.softmax(torch.einsum("bhid,bhjd->bhij", q, k), dim=-1)
    return reduce(weights, "b heads i j -> b i j", "max")


def test_patches_and_attention_are_the_same_on_a_simulated_gpu(gpu: ds.Device) -> None:
    x = torch.randn(4, 3, 8, 8)
    result = attended(ds.place(x, gpu))
    assert ds.device_of(result) is gpu
    torch.testing.assert_close(ds.place(result, "cpu"), attended(x))


def losses(device: ds.Device) -> list[float]:
    """Return the losses of five training steps on a device."""
    torch.manual_seed(0)
    mix = EinMix("b c (h p) (w q) -> b (h w) d", weight_shape="c p q d", bias_shape="d", c=3, p=2, q=2, d=5)
    model = torch.nn.Sequential(mix, torch.nn.GELU(), Rearrange("b n d -> b d n"), Reduce("b d n -> b d", "mean"))
    x, target = torch.randn(4, 3, 8, 8), torch.randn(4, 5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    ds.place(model, device)
    x, target = ds.place((x, target), device)
    found = []
    for _ in range(5):
        loss = torch.nn.functional.mse_loss(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert ds.device_of(loss) is device
        found.append(float(loss.detach()))
    return found


def test_a_model_of_einops_layers_trains_on_a_simulated_gpu(gpu: ds.Device) -> None:
    found = losses(gpu)
    assert found == losses(ds.cpu())
    assert found[-1] < found[0]
