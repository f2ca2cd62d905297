"""The operators of cuDNN for recurrent layers, ``CudnnRNN`` to ``CudnnRNNV3``, which have no kernels for the CPU.

They are computed by a loop over the time steps, from parameters in cuDNN's layout: the kernels of all layers, then
their biases. A layer has a kernel for its input and one for its state, and a bias for each. The gates of an LSTM are
in the order input, forget, cell, output, and those of a GRU reset, update, new (cudnnRNNMode_t in NVIDIA's manual).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from devshim.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["run"]

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


class _Layer(NamedTuple):
    """The parameters of one layer in one direction: the kernels have the shape (gates * units, size of the input)."""

    kernel: Any
    recurrent_kernel: Any
    bias: Any
    recurrent_bias: Any


def run(
    x: Any, h: Any, c: Any, params: Any, lengths: Any, *, mode: str, directions: int, dropout: float
) -> tuple[Any, Any, Any]:
    """Return the outputs of the last layer, and the last states ``h`` and ``c`` of all layers.

    Args:
        x: The inputs, with the shape (steps, batch, size).
        h: The first states, with the shape (layers * directions, batch, units).
        c: The same for the cells of an LSTM; other modes ignore it.
        params: The parameters of all layers, in one dimension.
        lengths: The number of steps of each sequence; the outputs after them are 0.
        mode: ``"lstm"``, ``"gru"``, ``"rnn_tanh"`` or ``"rnn_relu"``.
        directions: 2 for layers that also run backwards.
        dropout: The part of the inputs of each layer but the first that is replaced by 0.
    """
    units, last_h, last_c = h.shape[-1], [], []
    layers = _read_params(params, _GATES[mode], units, _input_sizes(x.shape[-1], h, directions))
    for number in range(0, len(layers), directions):
        if dropout and number:
            x = tf.nn.dropout(x, dropout)
        outputs = []
        for each in range(number, number + directions):
            cell = c[each] if mode == "lstm" else h[each]
            out, *last = _run_layer(x, h[each], cell, layers[each], lengths, mode, backwards=each > number)
            outputs.append(out)
            last_h.append(last[0])
            last_c.append(last[1])
        x = tf.concat(outputs, axis=-1)
    return x, tf.stack(last_h), tf.stack(last_c) if mode == "lstm" else tf.zeros((0,), x.dtype)


def _input_sizes(size: int, h: Any, directions: int) -> list[int]:
    """Return the size of each layer's inputs, in each direction."""
    if None in (size, h.shape[0], h.shape[-1]):
        msg = "an operator of cuDNN on simulated GPUs needs the sizes of its inputs and states when it is traced"
        raise UnsupportedError(msg, "give the shapes: tf.ensure_shape(x, [None, None, 8])")
    return [size] * directions + [h.shape[-1] * directions] * (h.shape[0] - directions)


def _read_params(params: Any, gates: int, units: int, sizes: Sequence[int]) -> list[_Layer]:
    """Return the parameters of each layer, in each direction."""
    rows, numbers = gates * units, []
    for size in sizes:
        numbers += [rows * size, rows * units]
    parts = tf.split(params, [*numbers, *([rows] * 2 * len(sizes))])
    kernels, biases = parts[: len(numbers)], parts[len(numbers) :]
    return [
        _Layer(
            tf.reshape(kernels[2 * i], (rows, size)),
            tf.reshape(kernels[2 * i + 1], (rows, units)),
            biases[2 * i],
            biases[2 * i + 1],
        )
        for i, size in enumerate(sizes)
    ]


def _run_layer(
    x: Any, h: Any, c: Any, layer: _Layer, lengths: Any, mode: str, *, backwards: bool
) -> tuple[Any, Any, Any]:
    """Return the outputs of a layer at each step, and its last states."""
    if backwards:
        x = tf.reverse_sequence(x, lengths, seq_axis=0, batch_axis=1)
    inputs = tf.matmul(x, layer.kernel, transpose_b=True) + layer.bias
    steps = tf.shape(x)[0]

    def step(t: Any, h: Any, c: Any, outputs: Any) -> tuple[Any, Any, Any, Any]:
        from_state = tf.matmul(h, layer.recurrent_kernel, transpose_b=True) + layer.recurrent_bias
        new_h, new_c = _step(mode, inputs[t], from_state, h, c)
        running = (t < lengths)[:, None]
        written = outputs.write(t, tf.where(running, new_h, tf.zeros_like(new_h)))
        return t + 1, tf.where(running, new_h, h), tf.where(running, new_c, c), written

    array = tf.TensorArray(x.dtype, size=steps, element_shape=h.shape)
    _, h, c, array = tf.while_loop(lambda t, *_: t < steps, step, (tf.constant(0), h, c, array))
    outputs = array.stack()
    if backwards:
        outputs = tf.reverse_sequence(outputs, lengths, seq_axis=0, batch_axis=1)
    return outputs, h, c


def _step(mode: str, from_input: Any, from_state: Any, h: Any, c: Any) -> tuple[Any, Any]:
    """Return the next states; a layer without cells has ``h`` for ``c``."""
    if mode == "lstm":
        i, f, g, o = tf.split(from_input + from_state, 4, axis=-1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(c), c
    if mode == "gru":
        (xr, xz, xn), (hr, hz, hn) = (tf.split(each, 3, axis=-1) for each in (from_input, from_state))
        z = tf.sigmoid(xz + hz)
        h = (1 - z) * tf.tanh(xn + tf.sigmoid(xr + hr) * hn) + z * h
        return h, h
    h = (tf.tanh if mode == "rnn_tanh" else tf.nn.relu)(from_input + from_state)
    return h, h
