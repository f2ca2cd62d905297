"""Tests of the order of flax NNX layers and of the features before them: partly flattened maps, and failures."""

from __future__ import annotations

import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import devshim as ds
from devshim.registry import registry

nnx = pytest.importorskip("flax.nnx")


def order_of(model: Any) -> list[str]:
    return [layer.path for layer in registry.load("jax").layers(model)]


def clarity(model: Any) -> dict[str, bool]:
    """Return, by layer, whether the order of its features is known."""
    found = registry.load("jax").layers(model)
    return {layer.path: not any(weight.unclear for weight in layer.weights.values()) for layer in found}


# ---------------------------------------------------------------------- the order of layers
class Attention(nnx.Module):
    """Layers with equal shapes, whose names are not in alphabetical order."""

    def __init__(self) -> None:
        for name in ("query", "key", "value", "out"):
            setattr(self, name, nnx.Linear(4, 4, rngs=nnx.Rngs(0)))

    def __call__(self, x: Any) -> Any:
        return self.out(self.query(x) + self.key(x) + self.value(x))


class Nested(nnx.Module):
    """More than ten layers in a list, which as words would be in another order, and layers in a dict."""

    def __init__(self) -> None:
        self.layers = nnx.List([nnx.Linear(4, 4, rngs=nnx.Rngs(0)) for _ in range(12)])
        self.attention = Attention()
        self.heads = nnx.Dict(second=nnx.Linear(4, 4, rngs=nnx.Rngs(0)), first=nnx.Linear(4, 4, rngs=nnx.Rngs(0)))
        if hasattr(nnx, "data"):
            self.early = nnx.data([nnx.Linear(4, 4, rngs=nnx.Rngs(0)) for _ in range(12)])

    def __call__(self, x: Any) -> Any:
        return self.heads["first"](self.attention(x))


@jax.jit
def ones() -> Any:
    return jnp.ones((1, 4))


def called_in_jit(model: Any) -> Any:
    """Return the module itself, whose attributes are filled again."""
    nnx.jit(lambda module, x: module(x))(model, ones())
    return model


REFILLED = {"merge": lambda model: nnx.merge(*nnx.split(model)), "clone": nnx.clone, "jit": called_in_jit}


@pytest.mark.parametrize("refill", REFILLED.values(), ids=REFILLED)
@pytest.mark.parametrize("cls", [Attention, Nested])
def test_layers_stay_in_the_order_of_their_creation(cls: Any, refill: Any) -> None:
    """Flax fills the attributes again, sorted by name; layers of equal shapes would get the weights of others."""
    fresh = order_of(cls())
    assert order_of(refill(cls())) == fresh
    if cls is Attention:
        assert fresh == ["query", "key", "value", "out"]


class Unlisted(Attention, **({"pytree": False} if hasattr(nnx, "Pytree") else {})):
    """A module of which flax does not list the attributes."""


class Annotated(nnx.Module):
    """A class that lists one of its attributes, whose place among the others is then not kept."""

    if hasattr(nnx, "data"):
        out: Any = nnx.data()

    __init__, __call__ = Attention.__init__, Attention.__call__


class InDict(nnx.Module):
    """Layers in a plain dict, which flax sorts."""

    def __init__(self) -> None:
        layers = {name: nnx.Linear(4, 4, rngs=nnx.Rngs(0)) for name in ("query", "key")}
        self.layers = nnx.data(layers) if hasattr(nnx, "data") else layers
        self.first = nnx.Linear(4, 4, rngs=nnx.Rngs(0))

    def __call__(self, x: Any) -> Any:
        return self.first(self.layers["query"](x) + self.layers["key"](x))


@pytest.mark.parametrize("refill", REFILLED.values(), ids=REFILLED)
def test_layers_whose_order_flax_does_not_keep_are_unclear(refill: Any) -> None:
    """No other framework loads their weights, as layers of equal shapes may be exchanged."""
    for cls in (Unlisted, Annotated):
        assert list(clarity(cls()).items()) == [(name, True) for name in ("query", "key", "value", "out")]
        assert clarity(refill(cls())) == dict.fromkeys(("key", "out", "query", "value"), False)
    assert clarity(InDict()) == {"layers.query": True, "layers.key": True, "first": True}
    assert clarity(refill(InDict())) == {"layers.query": False, "layers.key": False, "first": True}


def test_one_layer_has_no_order() -> None:
    """Nor has a module that flax sorts, if it lists its attributes in the order of their creation."""
    model = InDict()
    del model.layers["key"]
    assert all(clarity(nnx.clone(model)).values())
    assert all(clarity(nnx.clone(Nested())).values())


class Names(frozenset[str]):
    """The names that flax before 0.12 lists: today's flax also asks whether a name is one of data."""

    def __getitem__(self, name: str) -> bool:
        return name in self


def test_a_flax_that_lists_attributes_without_an_order() -> None:
    """Those before 0.12 have a set of names, whose order is another one in each process."""
    for model, is_fresh in ((Attention(), True), (nnx.clone(Attention()), False)):
        vars(model)["_pytree__nodes"] = Names(vars(model)["_pytree__nodes"])
        assert clarity(model) == dict.fromkeys(("query", "key", "value", "out"), is_fresh)
        assert not is_fresh or order_of(model) == ["query", "key", "value", "out"]


def test_a_flax_whose_only_graph_objects_are_those_of_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nnx, "Object", nnx.Pytree)
    monkeypatch.delattr(nnx, "Pytree")
    assert order_of(Attention()) == ["query", "key", "value", "out"]


# ---------------------------------------------------------------------- maps of which some axes are flattened
class Folded(nnx.Module):
    """A convolution, and a dense layer that takes what a function makes of the map."""

    def __init__(self, fold: Any, inputs: int, channels: int = 4) -> None:
        self.conv = nnx.Conv(1, channels, (3, 3), rngs=nnx.Rngs(0))
        self.fold = fold
        self.dense = nnx.Linear(inputs, 3, rngs=nnx.Rngs(0))
        self.last = nnx.Linear(3, 2, rngs=nnx.Rngs(0))

    def __call__(self, x: Any) -> Any:
        return self.last(nnx.relu(self.dense(self.fold(self.conv(x)))))


def columns(x: Any) -> Any:
    """Return the columns of maps with all their features: the input of a recurrent layer."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def tokens(x: Any) -> Any:
    return x.reshape(x.shape[0], -1, x.shape[-1])


@pytest.mark.parametrize("fold", [columns, jax.checkpoint(columns), lambda x: columns(x).swapaxes(0, 1)])
def test_the_order_of_a_partly_flattened_map_is_unknown(fold: Any) -> None:
    assert clarity(Folded(fold, 28 * 4)) == {"conv": True, "dense": False, "last": True}


@pytest.mark.parametrize(
    ("fold", "inputs"),
    [
        (tokens, 4),
        (lambda x: tokens(x) + np.random.default_rng(0).normal(size=(1, 784, 4)), 4),
        (lambda x: tokens(x).swapaxes(1, 2), 784),
    ],
    ids=["tokens", "tokens with their places", "channels with their places"],
)
def test_an_axis_that_is_not_flattened_has_the_plain_order(fold: Any, inputs: int) -> None:
    assert all(clarity(Folded(fold, inputs)).values())


class Blocks(Folded):
    """Dense layers of two widths on tokens, whose input is added to their output, with recomputation or not."""

    def __init__(self, wrap: Any, before: Any = tokens, inputs: int = 4) -> None:
        super().__init__(before, inputs)
        self.wide, self.narrow = nnx.Linear(inputs, 16, rngs=nnx.Rngs(0)), nnx.Linear(16, inputs, rngs=nnx.Rngs(0))
        self.wrap = wrap

    def __call__(self, x: Any) -> Any:
        x = self.fold(self.conv(x))
        for _ in range(2):
            x += self.wrap(lambda y: self.narrow(nnx.gelu(self.wide(y))))(x)
        return self.last(self.dense(x))


@pytest.mark.parametrize("wrap", [lambda function: function, jax.checkpoint], ids=["plain", "checkpoint"])
def test_dense_layers_on_tokens_have_the_plain_order(wrap: Any) -> None:
    assert all(clarity(Blocks(wrap)).values())


def test_a_partly_flattened_map_in_a_traced_function_is_unknown() -> None:
    """Its numbers cannot be read there."""
    found = clarity(Blocks(jax.checkpoint, columns, 28 * 4))
    assert found == {"conv": True, "dense": False, "last": True, "wide": False, "narrow": True}


def test_a_module_that_flax_takes_apart_during_the_call_is_unknown() -> None:
    """`nnx.remat` makes the layers again, and leaves them without attributes if their call fails."""

    class Taken(Folded):
        def __call__(self, x: Any) -> Any:
            return nnx.remat(lambda module, y: Folded.__call__(module, y))(self, x)

    assert clarity(Taken(columns, 28 * 4))["dense"] is False


# ---------------------------------------------------------------------- failures, guards, classes
def test_more_modules_make_no_more_classes() -> None:
    """Flax and JAX never free a class."""

    def classes() -> int:
        gc.collect()
        return sum(len(cls.__subclasses__()) for cls in (nnx.Conv, nnx.Linear))

    model = Folded(columns, 28 * 4)
    clarity(model)
    before = classes()
    for width in range(3, 13):
        model.last = nnx.Linear(3, width, rngs=nnx.Rngs(0))
        assert clarity(model) == {"conv": True, "dense": False, "last": True}
    assert classes() == before


def test_a_failure_is_not_kept() -> None:
    """Memory may be full in one call, but not in the next one."""
    failures = [MemoryError("full"), RuntimeError("later, in the call with numbers")]

    def flat(x: Any) -> Any:
        if failures and isinstance(x, jax.core.Tracer) == isinstance(failures[0], MemoryError):
            raise failures.pop(0)
        return x.reshape(x.shape[0], -1)

    model = Folded(flat, 784 * 4)
    assert [clarity(model)["dense"] for _ in range(3)] == [False, False, True]


@pytest.mark.usefixtures("two_cards")
def test_an_open_guard_sees_nothing_of_the_calls() -> None:
    """A weight on a GPU is multiplied by host values, which the guard would refuse, and raise again as it ends."""

    class Scaled(Folded):
        def __init__(self) -> None:
            super().__init__(None, 784 * 4)
            self.scale = nnx.Param(jnp.ones(4))

        def __call__(self, x: Any) -> Any:
            x = self.conv(x) * (self.scale * np.ones(4, "float32"))
            return self.last(self.dense(x.reshape(x.shape[0], -1)))

    model = ds.place(Scaled(), "gpu:1")
    with ds.guard("error"), ds.transfers() as log:
        assert all(clarity(model).values())
    assert str(log) == "<no transfers>", log
