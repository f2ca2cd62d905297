"""Optimal transport between point clouds with POT on a simulated GPU."""

from __future__ import annotations

import ot
import torch

import devshim as ds


def clouds() -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(0)
    return (
        torch.randn(20, 2, generator=made, dtype=torch.float64),
        torch.randn(30, 2, generator=made, dtype=torch.float64) + 2,
    )


def transported(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return x moved onto y by the barycentres of the regularised plan."""
    plan = ot.sinkhorn(ot.unif(len(x), type_as=x), ot.unif(len(y), type_as=y), ot.dist(x, y), reg=0.5)
    return plan @ y / plan.sum(dim=1, keepdim=True)


def test_a_point_cloud_is_transported_on_a_simulated_gpu(gpu: ds.Device) -> None:
    x, y = clouds()
    result = transported(*ds.place((x, y), gpu))
    assert ds.device_of(result) is gpu
    torch.testing.assert_close(ds.place(result, "cpu"), transported(x, y))


def test_the_exact_distance_has_a_gradient_on_a_simulated_gpu(gpu: ds.Device) -> None:
    gradients = []
    for device in (gpu, ds.cpu()):
        x, y = ds.place(clouds(), device)
        x.requires_grad_()
        distance = ot.emd2(ot.unif(len(x), type_as=x), ot.unif(len(y), type_as=y), ot.dist(x, y))
        distance.backward()
        assert ds.device_of(distance) is device
        assert ds.device_of(x.grad) is device
        gradients.append(ds.place(x.grad, "cpu"))
    torch.testing.assert_close(*gradients)
