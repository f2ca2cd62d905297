"""Tests of autograd on simulated GPUs in PyTorch: across GPUs, hooks, higher orders, ``torch.func``, tracing."""

from __future__ import annotations

import signal

import pytest
import torch
from simulated_torch import GPU, two_gpus_for_module  # noqa: F401 - a fixture

# PyTorch's own setup for forward mode still scripts.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.*` is deprecated:DeprecationWarning")


def leaf(*values, on=GPU):
    return torch.tensor(values or (1.0, 2.0, 3.0), device=on, requires_grad=True)


def test_backward():
    x = leaf()
    y = (x * x).sum()
    y.backward()
    assert str(x.grad.device) == GPU
    assert x.grad.tolist() == [2, 4, 6]
    (x * 3).sum().backward()
    assert x.grad.tolist() == [5, 7, 9]
    x.grad = None
    x.prod().backward()
    assert x.grad.tolist() == [6, 3, 2]


def test_backward_across_devices():
    host = torch.tensor([1.0, 2.0], requires_grad=True)
    first = host.to("sim:0")
    second = (first * 2).to(GPU)
    other = leaf(3.0, 4.0)
    first.retain_grad()
    (second * other).cpu().sum().backward()
    assert (host.grad.device.type, host.grad.tolist()) == ("cpu", [6, 8])
    assert (str(first.grad.device), first.grad.tolist()) == ("sim:0", [6, 8])
    assert (str(other.grad.device), other.grad.tolist()) == (GPU, [2, 4])


def test_a_gradient_on_another_device_is_refused():
    x = leaf()
    with pytest.raises(RuntimeError, match="device"):
        x.grad = torch.ones(3)
    with pytest.raises(RuntimeError, match="device"):
        (x * 2).backward(torch.ones(3))
    x.grad = torch.ones(3, device=GPU)


def test_gradients_of_gradients():
    x = leaf(2.0)
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    (third,) = torch.autograd.grad(h.sum(), x)
    assert (g.item(), h.item(), third.item()) == (12, 12, 6)
    assert {str(each.device) for each in (g, h, third)} == {GPU}


def test_several_outputs_and_unused_inputs():
    x, unused = leaf(), leaf()
    torch.autograd.backward([x.sum(), (x * 2).sum()])
    assert x.grad.tolist() == [3, 3, 3]
    assert torch.autograd.grad(x.sum(), [x, unused], allow_unused=True)[1] is None
    zeros = torch.autograd.grad(x.sum(), [x, unused], materialize_grads=True)[1]
    assert str(zeros.device) == GPU
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(1, device=GPU).backward()


def test_a_graph_is_used_twice_only_if_it_is_retained():
    x = leaf()
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 8, 12]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_an_inplace_change_of_a_saved_tensor_is_refused():
    x = leaf()
    y = x * 1
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    with pytest.raises(RuntimeError, match="leaf Variable"):
        x.add_(1)


def test_gradients_of_inplace_changes_and_views():
    x = leaf()
    y = x * 2
    y[0] = 0
    y.mul_(3)
    y[1:].add_(x[1:])
    y.sum().backward()
    assert x.grad.tolist() == [0, 7, 7]


def test_hooks():
    seen = []
    x = leaf()
    y = x * 2
    x.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(str(g.device)))
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    y.sum().backward()
    assert seen == [GPU, [20, 20, 20]]
    module = torch.nn.Linear(3, 1, device=GPU)
    module.register_forward_hook(lambda m, args, out: out * 2)
    module.register_full_backward_hook(lambda m, gi, go: seen.append(str(go[0].device)))
    module(leaf()).sum().backward()
    assert seen[-1] == GPU


def _fails(*given):
    raise KeyboardInterrupt from ValueError("why")


def _unpacking():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, _fails):
        return leaf() * leaf()


def _in_layer(register):
    layer = torch.nn.Linear(3, 1, device=GPU)
    getattr(layer, register)(_fails)
    return layer(leaf())


def _with(y, register):
    register(y)
    return y


FAILING = {
    "a tensor's": lambda: _with(leaf() * 2, lambda y: y.register_hook(_fails)),
    "after accumulation": lambda: _with(leaf(), lambda y: y.register_post_accumulate_grad_hook(_fails)),
    "a node's": lambda: _with(leaf() * 2, lambda y: y.grad_fn.register_hook(_fails)),
    "before a node": lambda: _with(leaf() * 2, lambda y: y.grad_fn.register_prehook(_fails)),
    "a layer's": lambda: _in_layer("register_full_backward_hook"),
    "before a layer": lambda: _in_layer("register_full_backward_pre_hook"),
    "of saved tensors": _unpacking,
}


@pytest.mark.parametrize("name", FAILING)
def test_an_error_in_a_hook_is_raised(name):
    """PyTorch queries the device's guard for its type while the error is pending, and used to crash."""
    for _ in range(40):  # also after Python has specialized the guard's code
        with pytest.raises(KeyboardInterrupt) as caught:
            FAILING[name]().sum().backward()
        assert "_fails" in [each.name for each in caught.traceback]
        assert isinstance(caught.value.__cause__, ValueError)
    x = leaf()
    (x * x).sum().backward()
    assert x.grad is not None


def test_ctrl_c_waits_for_the_end_of_a_backward_pass():
    """C++ queries the device's guard for a stream where no error may leave, and the process crashed (PyTorch 2.13)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        seen, x = [], leaf()
        y = x * 2
        y.register_hook(lambda _: signal.raise_signal(signal.SIGINT))
        x.register_hook(lambda g: seen.append(g.tolist()))
        with pytest.raises(KeyboardInterrupt):
            y.sum().backward()
        assert seen == [[2, 2, 2]]
        assert x.grad.tolist() == [2, 2, 2]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_in_a_backward_pass_within_another():
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            with torch.enable_grad():
                y = leaf() * 2
                y.register_hook(_fails)
                y.sum().backward()

    with pytest.raises(KeyboardInterrupt):
        Inner.apply(leaf()).sum().backward()
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(3, device=GPU).sum().backward()


def test_a_backward_pass_runs_inside_contexts():
    """A hook sees the caller's context variables and thread-local state only on the caller's thread."""
    import threading

    threads = []
    x = leaf()
    x.register_hook(lambda g: threads.append(threading.get_ident()))
    x.sum().backward()
    assert threads == [threading.get_ident()]


class Cube(torch.autograd.Function):
    """A cube with its own gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


def test_custom_functions():
    x = leaf(2.0)
    y = Cube.apply(x)
    y.backward()
    assert x.grad.item() == 12
    small = torch.rand(2, dtype=torch.float64, device=GPU, requires_grad=True)
    assert torch.autograd.gradcheck(Cube.apply, (small,))
    assert torch.autograd.gradgradcheck(Cube.apply, (small,))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    from torch.utils.checkpoint import checkpoint, checkpoint_sequential

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5), torch.nn.Tanh()).to(GPU)
    results = []
    for wrapped in (False, True):
        torch.manual_seed(3)
        x = leaf()
        y = checkpoint(model, x, use_reentrant=reentrant) if wrapped else model(x)
        y.sum().backward()
        results.append((y.tolist(), x.grad.tolist()))
    assert results[0] == results[1]
    checkpoint_sequential(model, 2, leaf(), use_reentrant=reentrant).sum().backward()


def test_saved_tensor_hooks():
    moves = []

    def pack(x):
        moves.append(str(x.device))
        return x.cpu()

    x = leaf()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda y: y.to(GPU)):
        y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [2, 4, 6]
    assert set(moves) == {GPU}
    z = leaf()
    with torch.autograd.graph.save_on_cpu():
        w = z.exp().sum()
    w.backward()
    assert torch.allclose(z.grad, z.exp())


def test_modes():
    x = leaf()
    with torch.no_grad():
        assert not (x * 2).requires_grad
    with torch.inference_mode():
        made = x * 2
        assert made.is_inference()
        assert made[0].item() == 2
    with torch.enable_grad():
        assert (x * 2).requires_grad
    with torch.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="nan"):
        (leaf(0.0) * float("nan")).sqrt().backward()


def test_forward_mode():
    import torch.autograd.forward_ad as forward

    with forward.dual_level():
        dual = forward.make_dual(torch.ones(2, device=GPU), torch.full((2,), 3.0, device=GPU))
        assert forward.unpack_dual(dual * dual).tangent.tolist() == [6, 6]


def test_functional():
    from torch.autograd.functional import hessian, jacobian

    x = torch.tensor([1.0, 2.0], device=GPU)
    assert jacobian(lambda v: v * v, x).tolist() == [[2, 0], [0, 4]]
    assert hessian(lambda v: (v**3).sum(), x).tolist() == [[6, 0], [0, 12]]


def test_torch_func():
    from torch import func

    x = torch.tensor([1.0, 2.0], device=GPU)
    assert func.grad(lambda v: (v**2).sum())(x).tolist() == [2, 4]
    assert func.jacrev(lambda v: v**2)(x).tolist() == [[2, 0], [0, 4]]
    assert func.jacfwd(lambda v: v**2)(x).tolist() == [[2, 0], [0, 4]]
    assert func.hessian(lambda v: (v**2).sum())(x).tolist() == [[2, 0], [0, 2]]
    value, pull = func.vjp(torch.sin, x)
    assert str(pull(torch.ones_like(value))[0].device) == GPU
    assert str(func.jvp(torch.sin, (x,), (x,))[1].device) == GPU


def test_vmap():
    from torch import func

    rows = torch.arange(6.0, device=GPU).reshape(3, 2)
    doubled = func.vmap(lambda row: row * 2)(rows)
    assert str(doubled.device) == GPU
    assert torch.equal(doubled, rows * 2)
    assert func.vmap(torch.dot)(rows, rows).tolist() == [1, 13, 41]
    assert func.vmap(func.grad(lambda v: (v**2).sum()))(rows).tolist() == (2 * rows).tolist()
    model = torch.nn.Linear(2, 1).to(GPU)
    parameters = dict(model.named_parameters())
    per_sample = func.vmap(func.grad(lambda p, row: func.functional_call(model, p, (row,)).sum()), in_dims=(None, 0))(
        parameters, rows
    )
    assert per_sample["weight"].shape == (3, 1, 2)
    assert str(per_sample["weight"].device) == GPU


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_compiled(compiler):
    torch._dynamo.reset()

    @torch.compile(backend=compiler, fullgraph=True)
    def step(x):
        y = torch.ones(3, device=x.device)
        return (x * 2 + y).relu()

    x = leaf()
    y = step(x)
    assert str(y.device) == GPU
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    torch._dynamo.reset()


def test_scripted_and_traced():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()).to(GPU)
    x = torch.ones(1, 3, device=GPU)
    assert torch.equal(torch.fx.symbolic_trace(model)(x), model(x))
    exported = torch.export.export(model, (x,))
    assert torch.equal(exported.module()(x), model(x))
