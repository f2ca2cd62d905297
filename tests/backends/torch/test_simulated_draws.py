"""Tests of random numbers on simulated GPUs in PyTorch: each GPU has its own generator, seeded, saved and forked."""

from __future__ import annotations

import pytest
import torch
from simulated_torch import GPU

import devshim as ds

pytestmark = pytest.mark.usefixtures("two_cards")


DRAWS = {
    "rand": lambda d: torch.rand(5, device=d),
    "randn": lambda d: torch.randn(5, device=d),
    "randint": lambda d: torch.randint(0, 100, (5,), device=d),
    "randperm": lambda d: torch.randperm(9, device=d),
    "rand_like": lambda d: torch.rand_like(torch.ones(5, device=d)),
    "randn_like": lambda d: torch.randn_like(torch.ones(5, device=d)),
    "normal": lambda d: torch.normal(0.0, torch.ones(5, device=d)),
    "normal of a size": lambda d: torch.normal(0.0, 1.0, (5,), device=d),
    "bernoulli": lambda d: torch.bernoulli(torch.full((20,), 0.5, device=d)),
    "multinomial": lambda d: torch.multinomial(torch.ones(9, device=d), 4),
    "poisson": lambda d: torch.poisson(torch.full((5,), 9.0, device=d)),
    "uniform_": lambda d: torch.empty(5, device=d).uniform_(),
    "normal_": lambda d: torch.empty(5, device=d).normal_(),
    "cauchy_": lambda d: torch.empty(5, device=d).cauchy_(),
    "geometric_": lambda d: torch.empty(9, device=d).geometric_(0.3),
    "random_": lambda d: torch.empty(5, device=d).random_(),
    "exponential_": lambda d: torch.empty(5, device=d).exponential_(),
    "log_normal_": lambda d: torch.empty(5, device=d).log_normal_(),
    "dropout": lambda d: torch.nn.functional.dropout(torch.ones(20, device=d)),
    "feature_dropout": lambda d: torch.nn.functional.dropout2d(torch.ones(1, 9, 2, 2, device=d)),
    "rrelu": lambda d: torch.nn.functional.rrelu(-torch.ones(9, device=d), training=True),
    "gumbel": lambda d: torch.nn.functional.gumbel_softmax(torch.ones(5, device=d)),
    "xavier": lambda d: torch.nn.init.xavier_normal_(torch.empty(3, 3, device=d)),
    "kaiming": lambda d: torch.nn.init.kaiming_uniform_(torch.empty(3, 3, device=d)),
    "orthogonal": lambda d: torch.nn.init.orthogonal_(torch.empty(3, 3, device=d)),
    "trunc_normal": lambda d: torch.nn.init.trunc_normal_(torch.empty(3, 3, device=d)),
    "a layer": lambda d: torch.nn.Linear(3, 3, device=d).weight.detach(),
    "a distribution": lambda d: torch.distributions.Normal(torch.zeros(3, device=d), 1.0).sample(),
    "gamma": lambda d: torch.distributions.Gamma(torch.ones(3, device=d), torch.ones(3, device=d)).sample(),
    "categorical": lambda d: torch.distributions.Categorical(torch.ones(9, device=d)).sample((5,)),
    "dirichlet": lambda d: torch.distributions.Dirichlet(torch.ones(3, device=d)).sample(),
}


@pytest.mark.parametrize("form", DRAWS)
def test_the_same_seed_draws_the_hosts_numbers(form):
    results = []
    for device in ("cpu", GPU, GPU, "sim:0"):
        torch.manual_seed(4)
        drawn = DRAWS[form](device)
        assert str(drawn.device) == device
        results.append(drawn.cpu())
    assert all(torch.equal(results[0], each) for each in results[1:])


@pytest.mark.parametrize("form", DRAWS)
def test_a_draw_advances_only_the_generator_of_its_gpu(form):
    states = [torch.get_rng_state(), torch.sim.get_rng_state("sim:0"), torch.sim.get_rng_state(GPU)]
    DRAWS[form](GPU)
    assert torch.equal(states[0], torch.get_rng_state())
    assert torch.equal(states[1], torch.sim.get_rng_state("sim:0"))
    assert not torch.equal(states[2], torch.sim.get_rng_state(GPU))


def test_generators():
    one, other = (torch.Generator(device=GPU).manual_seed(9) for _ in range(2))
    assert one.device == torch.device(GPU)
    assert one.initial_seed() == 9
    assert isinstance(one, torch.Generator)
    first = torch.rand(3, device=GPU, generator=one)
    assert torch.equal(first, torch.rand(3, device=GPU, generator=other))
    state = one.get_state()
    second = torch.randn(3, device=GPU, generator=one)
    one.set_state(state)
    assert torch.equal(second, torch.randn(3, device=GPU, generator=one))
    assert torch.empty(3, device=GPU).normal_(generator=one).isfinite().all()
    assert torch.randperm(5, device=GPU, generator=one).sort().values.tolist() == [0, 1, 2, 3, 4]
    assert torch.multinomial(torch.ones(3, device=GPU), 2, generator=one).shape == (2,)
    assert one.seed() != 9
    assert str(torch.Generator("sim").device) == "sim:0"


FROM_GENERATORS = {
    "rand": lambda g: torch.rand(3, device=GPU, generator=g),
    "randn": lambda g: torch.randn(3, device=GPU, generator=g),
    "randint": lambda g: torch.randint(9, (3,), device=GPU, generator=g),
    "normal_": lambda g: torch.empty(3, device=GPU).normal_(generator=g),
    "randperm": lambda g: torch.randperm(4, device=GPU, generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(3, device=GPU), 2, generator=g),
    "bernoulli": lambda g: torch.bernoulli(torch.full((9,), 0.5, device=GPU), generator=g),
}


@pytest.mark.parametrize("draw", FROM_GENERATORS)
def test_a_generator_of_another_gpu_draws(draw):
    """PyTorch compares only the types of devices."""
    other, same = (torch.Generator(device).manual_seed(3) for device in ("sim:0", GPU))
    drawn = FROM_GENERATORS[draw](other)
    assert str(drawn.device) == GPU
    assert torch.equal(drawn, FROM_GENERATORS[draw](same))
    assert torch.equal(other.get_state(), same.get_state())


@pytest.mark.parametrize("draw", FROM_GENERATORS)
def test_a_generator_of_the_host_is_refused(draw):
    with pytest.raises(RuntimeError, match="Expected a 'sim' device type for generator but found 'cpu'"):
        FROM_GENERATORS[draw](torch.Generator())


def test_the_host_refuses_a_generator_of_a_gpu():
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'sim'"):
        torch.rand(3, generator=torch.Generator(GPU))
    with pytest.raises(RuntimeError, match="generator"):
        torch.randperm(3, generator=torch.Generator(GPU))


def test_seeds():
    torch.manual_seed(1)
    both = [torch.rand(2, device=f"sim:{i}").cpu() for i in range(2)]
    assert torch.equal(*both)
    torch.sim.manual_seed_all(1)
    assert torch.equal(torch.rand(2, device=GPU).cpu(), both[0])
    torch.rand(1, device="sim:0")
    with torch.accelerator.device_index(1):
        torch.sim.manual_seed(1)
    assert torch.equal(torch.rand(2, device=GPU).cpu(), both[0])
    assert not torch.equal(torch.rand(2, device="sim:0").cpu(), both[0])
    ds.random.seed(1)
    assert torch.equal(torch.rand(2, device=GPU).cpu(), both[0])
    torch.seed()
    assert not torch.equal(torch.rand(2, device=GPU).cpu(), both[0])


def test_states():
    state = torch.sim.get_rng_state(GPU)
    assert state.device.type == "cpu"
    assert state.dtype == torch.uint8
    drawn = torch.rand(3, device=GPU)
    torch.sim.set_rng_state(state, GPU)
    assert torch.equal(drawn, torch.rand(3, device=GPU))


def test_fork_rng():
    torch.manual_seed(2)
    wanted = torch.rand(3, device=GPU)
    torch.manual_seed(2)
    with torch.random.fork_rng(devices=[0, 1], device_type="sim"):
        torch.rand(3, device=GPU)
        torch.manual_seed(77)
    assert torch.equal(wanted, torch.rand(3, device=GPU))
    with torch.random.fork_rng(devices=[1], device_type="sim"):
        torch.rand(1, device="sim:0")
        torch.rand(1, device=GPU)


def test_restarted_gpus_draw_the_same_numbers():
    first = torch.rand(3, device=GPU)
    ds.simulate(gpus=0)
    ds.simulate(gpus=2)
    assert torch.rand(3, device=GPU).shape == first.shape
    torch.manual_seed(0)
    again = torch.rand(3, device=GPU)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(3).cpu(), again.cpu())
