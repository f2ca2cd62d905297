"""One sample of an operator on one device, and the ways to call it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from compare import HOST, Differs, ramp, tensors
from torch.utils._pytree import tree_flatten, tree_map

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Call:
    """One sample on one device.

    Attributes:
        device: The device of the tensors, except those that PyTorch requires on the host.
        target: The device required for results: the one that the sample names, or that of its tensors, or the default.
    """

    device: torch.device
    target: torch.device
    input: Any
    args: Any
    kwargs: dict[str, Any]
    broadcasts: bool
    loss_of: Callable[[Any], Any]

    @classmethod
    def from_sample(cls, sample: Any, device: torch.device) -> Call:
        """Return the call of a sample as it was drawn for a device."""
        parts = sample.input, sample.args, sample.kwargs
        named = [torch.device(leaf) for leaf in tree_flatten(parts)[0] if _names_device(leaf)]
        target = named[0] if named else device if tensors(parts) else HOST
        # Some samples are views, made without autograd, of a tensor that requires a gradient but never gets one.
        parts = _map_tensors(parts, lambda tensor: tensor.detach().requires_grad_(tensor.requires_grad))
        return cls(device, target, *parts, sample.broadcasts_input, sample.output_process_fn_grad)

    def on_host(self) -> Call:
        """Return the same call on the host."""
        parts = _map_tensors((self.input, self.args, self.kwargs), _copy_to_host)
        parts = tree_map(lambda leaf: HOST if _names_device(leaf) else leaf, parts)
        return Call(HOST, HOST, *parts, self.broadcasts, self.loss_of)

    def leaves(self) -> list[torch.Tensor]:
        """Return the tensors that get a gradient."""
        return tensors((self.input, self.args, self.kwargs), lambda tensor: tensor.requires_grad)

    def forward(self, function: Callable[..., Any]) -> Any:
        """Call the operator."""
        return function(self.input, *self.args, **self.kwargs)

    def in_place(self, function: Callable[..., Any]) -> Any:
        """Call the variant that ends in an underscore on a copy of the input, and return the copy."""
        changed = self.input.clone()
        if function(changed, *self.args, **self.kwargs) is not changed:
            raise Differs("the operator does not return the tensor that it changed")
        return changed

    def with_out(self, function: Callable[..., Any], like: Any, resized: bool) -> Any:
        """Call the operator with ``out=`` of the result's shape, or empty, and return what it wrote."""

        def empty(tensor: torch.Tensor) -> torch.Tensor:
            shape = (0,) if resized else tensor.shape
            return torch.ones(shape, dtype=tensor.dtype, device=self.target)  # some leave it unchanged (fft.ihfftn)

        out = empty(like) if isinstance(like, torch.Tensor) else tuple(empty(each) for each in like)
        with torch.no_grad():
            result = function(self.input, *self.args, **self.kwargs, out=out)
        if any(one is not other for one, other in zip(tensors(out), tensors(result), strict=True)):
            raise Differs("the operator does not return its out= argument")
        return out

    def gradients(self, result: Any) -> Any:
        """Return the gradient of every leaf."""
        outputs = tensors(self.loss_of(result), lambda tensor: tensor.requires_grad)
        if not outputs:
            return ()
        return torch.autograd.grad(outputs, self.leaves(), [ramp(end) for end in outputs], allow_unused=True)


def takes_out(result: Any) -> bool:
    """Return True if a result can be an ``out=`` argument: a tensor or several."""
    return isinstance(result, torch.Tensor) or (
        isinstance(result, (tuple, list)) and bool(result) and all(isinstance(each, torch.Tensor) for each in result)
    )


def _map_tensors(tree: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a tree with its tensors changed; one that occurs twice stays one."""
    changed: dict[int, torch.Tensor] = {}

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in changed:
            changed[id(leaf)] = change(leaf)
        return changed[id(leaf)]

    return tree_map(one, tree)


def _names_device(leaf: Any) -> bool:
    if isinstance(leaf, str):
        return leaf.partition(":")[0] in ("cpu", "sim", "cuda")
    return isinstance(leaf, torch.device)


def _copy_to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy on the host in memory of the same layout: for a view, a view of a copied base."""
    plain = tensor.detach()
    if plain.layout != torch.strided or plain.is_conj() or plain.is_neg() or _is_model_or_optimizer(plain):
        copy = plain.to(HOST)
    else:
        base = plain.as_strided((plain.untyped_storage().nbytes() // plain.element_size(),), (1,), 0)
        copy = base.to(HOST).as_strided(plain.shape, plain.stride(), plain.storage_offset())
    return copy.requires_grad_(tensor.requires_grad)


def _is_model_or_optimizer(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes
