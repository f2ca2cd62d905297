"""Function transforms, subclasses, operators, parametrizations and hooks: on a card they compute what the CPU does."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad, functional
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, stack_module_state, vjp, vmap
from torch.nn.utils import parametrizations, parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only


def numbers(device, *shape):
    return (torch.arange(np.prod(shape), dtype=torch.float64).reshape(shape) / 7 - 0.5).to(device)


def waves(x):
    return (x.sin() * x**2).sum(-1)


def net(device):
    made = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double().to(device)
    for each in made.parameters():
        each.data = numbers(device, *each.shape)
    return made


def dual(x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(net(x.device)(forward_ad.make_dual(x, torch.ones_like(x)))).tangent


def gradients_of_samples(x):
    model = net(x.device)
    weights = {name: each.detach() for name, each in model.named_parameters()}
    loss = grad(lambda values, row: functional_call(model, values, (row,)).pow(2).sum())
    return vmap(loss, in_dims=(None, 0))(weights, x)


def ensemble(x):
    models = [net(x.device) for _ in range(3)]
    weights, buffers = stack_module_state(models)
    return vmap(lambda w, b: functional_call(models[0], (w, b), (x,)))(weights, buffers)


class Scaled(torch.Tensor):
    """A tensor and a scale, which every operator applies."""

    @staticmethod
    def __new__(cls, data, scale):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=data.dtype, device=data.device)

    def __init__(self, data, scale):
        self.inner, self.scale = data, scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        given, named = tree_map_only(Scaled, lambda each: each.inner * each.scale, (args, kwargs or {}))
        return func(*given, **named)


def subclass(x):
    scaled = Scaled(x, 2.0)
    assert scaled.device == x.device
    assert scaled.is_cuda == x.is_cuda
    return scaled + 1, scaled.sum(), scaled.to("cpu").to(x.device)


class Calls(TorchDispatchMode):
    """A mode that counts operators."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


class Ones(TorchFunctionMode):
    """A mode that replaces a function."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return (torch.ones if func is torch.zeros else func)(*args, **(kwargs or {}))


def modes(x):
    with Calls() as calls:
        ((x @ x.T).relu() + torch.zeros_like(x[:, :1])).sum()
    with Ones():
        return torch.zeros(2, device=x.device), torch.tensor(calls.count, device=x.device)


class Named:
    """A tensor with a name, whose table has the functions that it computes itself."""

    def __init__(self, inner, name):
        self.inner, self.name = inner, name

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in TABLE:
            return TABLE[func](*args, **(kwargs or {}))
        return Named(func(*(each.inner if isinstance(each, Named) else each for each in args)), args[0].name)


TABLE = {torch.zeros_like: lambda x: x.inner * 0, torch.mean: lambda x: x.inner.mean(), torch.Tensor.to: lambda x, d: x}


def table(x):
    named = torch.add(Named(x, "weights"), 1)
    assert named.name == "weights"
    return named.inner, torch.zeros_like(named), torch.mean(named)


@torch.library.custom_op("transforms::sine", mutates_args=())
def sine(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sin(x.detach().cpu().numpy())).to(x.device)


sine.register_fake(torch.empty_like)
sine.register_vmap(lambda info, dims, x: (sine(x), dims[0]))
sine.register_autograd(
    lambda ctx, gradient: gradient * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def operator(x):
    leaf = x.clone().requires_grad_()
    sine(leaf).sum().backward()
    return leaf.grad, vmap(sine)(x), torch.compile(sine, backend="eager", fullgraph=True)(x)


class Skew(nn.Module):
    """A parametrization."""

    def forward(self, x):
        return x.triu(1) - x.triu(1).T


def parametrized(x):
    layer = nn.Linear(3, 3, bias=False).double().to(x.device)
    layer.weight.data = numbers(x.device, 3, 3)
    parametrize.register_parametrization(layer, "weight", Skew())
    normed = parametrizations.weight_norm(net(x.device)[0])
    layer(x).sum().backward()
    return layer.weight, layer.parametrizations.weight.original.grad, normed(x)


def hooked(x):
    model, seen = net(x.device), []
    model[0].register_forward_hook(lambda module, args, result: seen.append(result.detach()))
    model[2].register_full_backward_hook(lambda module, before, after: seen.extend(before))
    model[0].weight.register_post_accumulate_grad_hook(lambda weight: seen.append(weight.grad))
    pack, unpack = torch.Tensor.cpu, lambda saved: saved.to(x.device)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        result = model(x)
    result.sum().backward()
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        again = model(x).sum()
    again.backward()
    return seen


CASES = {
    "grad": grad(lambda x: waves(x).sum()),
    "vjp": lambda x: vjp(waves, x)[1](torch.ones_like(waves(x))),
    "jvp": lambda x: jvp(waves, (x,), (x,)),
    "linearize": lambda x: linearize(waves, x)[1](x),
    "jacrev": jacrev(waves),
    "jacfwd": jacfwd(waves),
    "hessian": hessian(lambda x: nn.functional.gelu(x).log_softmax(-1)[0, 0]),
    "third derivatives": jacfwd(hessian(lambda x: (x**4).sum())),
    "dual numbers": dual,
    "jacobian": lambda x: functional.jacobian(waves, x, vectorize=True, strategy="forward-mode"),
    "gradients of samples": gradients_of_samples,
    "ensemble": ensemble,
    "subclass": subclass,
    "modes": modes,
    "table": table,
    "operator": operator,
    "parametrized": parametrized,
    "hooked": hooked,
}
for title, case in CASES.items():
    expected, found = case(numbers("cpu", 2, 3)), case(numbers("cuda:1", 2, 3))
    devices = {str(each.device) for each in tree_leaves(found)}
    torch.testing.assert_close(tree_map_only(Tensor, Tensor.cpu, found), expected)
    print(f"{title}: {len(tree_leaves(found))} tensors on {', '.join(devices)}")
