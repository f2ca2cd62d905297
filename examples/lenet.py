"""Train LeNet on two GPUs, data parallel or model parallel: one program for every framework.

    python examples/lenet.py torch data lenet.safetensors
    python examples/lenet.py jax model lenet.safetensors

Each command trains for one epoch, starting from the checkpoint if the file exists, and saves the result there. So the
second command continues on JAX what the first began on PyTorch. The losses are those of two epochs on one framework,
because weights, noise and order of the images come from portable generators.

``data``: both GPUs compute the gradients of half a batch each, with all layers. ``model``: ``gpu:0`` computes the
convolutions of the whole batch, and ``gpu:1`` the dense layers. Without two GPUs, devshim simulates them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import devshim as ds

CLASSES, SIDE, IMAGES, ROWS = 10, 20, 480, 48
RATE, DECAY, MOMENTUM, LARGEST_NORM = 0.03, 0.5, 0.9, 5.0
GPUS = [ds.gpu(0), ds.gpu(1)]


# ---------------------------------------------------------------------- the network
def initial() -> Any:
    """Return the first weights, on the CPU: two convolutions with windows of 5 x 5, and three dense layers."""
    generator = ds.random.Generator(1, "cpu", portable=True)

    def layer(inputs: int, outputs: int) -> dict[str, Any]:
        weight = generator.normal(0, (2 / inputs) ** 0.5, (inputs, outputs), dtype="float32")
        return {"w": weight, "b": ds.zeros(outputs, dtype="float32", device="cpu")}

    return {
        "convolutions": (layer(25, 6), layer(25 * 6, 16)),
        "dense": (layer(2 * 2 * 16, 120), layer(120, 84), layer(84, CLASSES)),
    }


def convolve(x: Any, layer: Any) -> Any:
    """Return the convolution of images (rows, height, width, channels) with windows of 5 x 5, without padding."""
    xp = ds.namespace(x)
    for axis in (1, 2):
        end = x.shape[axis] - 4
        shifted = [x[:, i : i + end] if axis == 1 else x[:, :, i : i + end] for i in range(5)]
        x = xp.concat(shifted, axis=3)
    return xp.matmul(x, layer["w"]) + layer["b"]


def pool(x: Any) -> Any:
    """Return the largest of each 2 x 2 values, of each channel."""
    xp = ds.namespace(x)
    rows, height, width, channels = x.shape
    return xp.max(xp.reshape(x, (rows, height // 2, 2, width // 2, 2, channels)), axis=(2, 4))


def features(layers: Any, images: Any) -> Any:
    """Return the outputs of the convolutions, of shape (rows, 64)."""
    xp = ds.namespace(images)
    x = images
    for layer in layers:
        x = pool(xp.tanh(convolve(x, layer)))
    return xp.reshape(x, (x.shape[0], -1))


def scores(layers: Any, x: Any) -> Any:
    """Return the scores of each class, of shape (rows, classes)."""
    xp = ds.namespace(x)
    for layer in layers[:-1]:
        x = xp.tanh(xp.matmul(x, layer["w"]) + layer["b"])
    return xp.matmul(x, layers[-1]["w"]) + layers[-1]["b"]


def cross_entropy(outputs: Any, labels: Any) -> Any:
    """Return the mean of the negative logarithms of the softmax, at the labels."""
    xp = ds.namespace(outputs)
    shifted = outputs - ds.stop_gradient(xp.max(outputs, axis=1, keepdims=True))
    chosen = xp.take_along_axis(shifted, xp.expand_dims(labels, axis=1), axis=1)[:, 0]
    return xp.mean(xp.log(xp.sum(xp.exp(shifted), axis=1)) - chosen)


# ---------------------------------------------------------------------- two ways to use two GPUs
def loss(params: Any, batch: Any) -> Any:
    """Return the loss; if the dense layers are on another device than the images, continue there."""
    x = features(params["convolutions"], batch["images"])
    there = ds.device_of(params["dense"][0]["w"])
    x, labels = ds.place((x, batch["labels"]), there)
    return cross_entropy(scores(params["dense"], x), labels)


# The function that computes the loss and its gradients on both GPUs, and the devices of parameters and batches.
WAYS: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "data": (ds.data_parallel(ds.value_and_grad(loss), GPUS), {"*": GPUS[0]}, "cpu"),
    "model": (ds.value_and_grad(loss), {"*.convolutions.*": GPUS[0], "*.dense.*": GPUS[1]}, GPUS[0]),
}


# ---------------------------------------------------------------------- training
def images() -> tuple[np.ndarray, np.ndarray]:
    """Return noisy images (rows, height, width, 1) of ten patterns, and the number of the pattern of each."""
    rng = np.random.default_rng(0)
    patterns, labels = rng.normal(size=(CLASSES, SIDE, SIDE, 1)), rng.integers(CLASSES, size=IMAGES)
    return (patterns[labels] + rng.normal(0, 0.5, (IMAGES, SIDE, SIDE, 1))).astype("float32"), labels


def batches(epoch: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield the batches of an epoch, of NumPy arrays."""
    inputs, labels = images()
    order = ds.to_numpy(ds.random.Generator(epoch, "cpu", portable=True).permutation(IMAGES))
    for rows in np.split(order, range(ROWS, IMAGES, ROWS)):
        yield {"images": inputs[rows], "labels": labels[rows]}


def each(fn: Callable[..., Any], *networks: Any) -> Any:
    """Return a network of ``fn(*leaves)`` for the leaves at each position; each part is computed on its device."""

    def in_layers(*parts: Any) -> Any:
        return tuple([in_layer(*layers) for layers in zip(*parts, strict=True)])

    def in_layer(first: Any, *others: Any) -> Any:
        return {name: fn(x, *[other[name] for other in others]) for name, x in first.items()}

    return {part: ds.run(in_layers, *[network[part] for network in networks]) for part in networks[0]}


def clipped(grads: Any) -> Any:
    """Return the gradients, made shorter if all together are longer than the limit."""
    squares = each(lambda x: ds.namespace(x).sum(x * x), grads)
    found = ds.gather([x for _, x in sorted(ds.leaves(squares).items())], "cpu")
    scale = min(1.0, LARGEST_NORM / float(ds.to_numpy(found).sum() ** 0.5))
    return each(lambda x: x * scale, grads)


def train_epoch(state: Any, way: str) -> tuple[Any, np.ndarray]:
    """Return the state after one more epoch, and the loss of each batch."""
    step, _, source = WAYS[way]
    params, momenta = state["params"], state["momenta"]
    rate = RATE * DECAY ** state["epoch"]
    losses = ds.MetricLog(capacity=IMAGES // ROWS)
    for batch in ds.prefetch(batches(state["epoch"]), source):
        value, grads = step(params, batch)
        grads = clipped(grads)
        momenta = each(lambda momentum, grad: MOMENTUM * momentum + grad, momenta, grads)
        params = each(lambda x, momentum: x - rate * momentum, params, momenta)
        losses.append(value)
    return {"params": params, "momenta": momenta, "epoch": state["epoch"] + 1}, losses.flush()


def accuracy(params: Any) -> float:
    """Return the fraction of all images that are classified correctly: the same functions compute it on NumPy."""
    inputs, labels = images()
    params = each(ds.to_numpy, params)
    outputs = scores(params["dense"], features(params["convolutions"], inputs))
    return float((outputs.argmax(1) == labels).mean())


def main(backend: str, way: str, path: str) -> None:
    """Train for one epoch, and print the losses and the accuracy."""
    ds.use(backend)
    if ds.device_count() < len(GPUS):
        ds.simulate(len(GPUS))
    placement = ds.Placement(WAYS[way][1], default="cpu")
    if Path(path).exists():
        state = ds.load(path, placement)
    else:
        params = ds.place(initial(), "cpu")
        state = ds.place({"params": params, "momenta": each(ds.zeros_like, params), "epoch": 0}, placement)
    state, losses = train_epoch(state, way)
    ds.save(state, path)
    for number, value in enumerate(losses):
        print(state["epoch"], number, repr(float(value)))
    print("accuracy", accuracy(state["params"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
