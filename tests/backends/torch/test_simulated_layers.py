"""Tests that every layer and loss of ``torch.nn`` computes the same on a simulated GPU as on the host."""

from __future__ import annotations

import copy

import pytest
import torch
from simulated_torch import GPU, two_gpus_for_module  # noqa: F401 - a fixture

nn = torch.nn


def ints(*shape, high):
    return torch.randint(0, high, shape)


ZOO = {
    "Linear": (lambda: nn.Linear(4, 3), lambda: [torch.randn(2, 4)]),
    "Bilinear": (lambda: nn.Bilinear(3, 4, 2), lambda: [torch.randn(2, 3), torch.randn(2, 4)]),
    "Conv1d": (lambda: nn.Conv1d(2, 3, 3), lambda: [torch.randn(2, 2, 7)]),
    "Conv2d": (lambda: nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), lambda: [torch.randn(2, 2, 8, 8)]),
    "Conv2d same": (
        lambda: nn.Conv2d(2, 4, 3, padding="same", padding_mode="reflect"),
        lambda: [torch.randn(1, 2, 5, 5)],
    ),
    "Conv3d": (lambda: nn.Conv3d(1, 2, 2), lambda: [torch.randn(1, 1, 4, 4, 4)]),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 3, 3, stride=2), lambda: [torch.randn(1, 2, 4, 4)]),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), lambda: [torch.randn(4, 3, 5, 5)]),
    "LayerNorm": (lambda: nn.LayerNorm(4), lambda: [torch.randn(2, 3, 4)]),
    "RMSNorm": (lambda: nn.RMSNorm(4), lambda: [torch.randn(2, 3, 4)]),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), lambda: [torch.randn(2, 4, 3)]),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(2, affine=True), lambda: [torch.randn(2, 2, 3, 3)]),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), lambda: [torch.randn(1, 1, 4, 4)]),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(2), lambda: [torch.randn(1, 1, 5, 5)]),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), lambda: [torch.randn(1, 1, 3, 3)]),
    "Dropout": (lambda: nn.Dropout(0.5), lambda: [torch.randn(50)]),
    "Dropout2d": (lambda: nn.Dropout2d(0.5), lambda: [torch.randn(2, 8, 2, 2)]),
    "GELU": (lambda: nn.GELU(), lambda: [torch.randn(9)]),
    "PReLU": (lambda: nn.PReLU(), lambda: [torch.randn(9)]),
    "RReLU": (lambda: nn.RReLU(), lambda: [torch.randn(9)]),
    "Softmax": (lambda: nn.Softmax(-1), lambda: [torch.randn(3, 4)]),
    "Embedding": (lambda: nn.Embedding(6, 3, padding_idx=0), lambda: [ints(2, 4, high=6)]),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(6, 3, mode="mean"), lambda: [ints(2, 4, high=6)]),
    "EmbeddingBag max": (lambda: nn.EmbeddingBag(6, 3, mode="max"), lambda: [ints(7, high=6), torch.tensor([0, 3])]),
    "RNN": (lambda: nn.RNN(3, 4, 2, bidirectional=True), lambda: [torch.randn(5, 2, 3)]),
    "LSTM": (lambda: nn.LSTM(3, 4, 2, batch_first=True), lambda: [torch.randn(2, 5, 3)]),
    "LSTM dropout": (lambda: nn.LSTM(3, 4, 2, dropout=0.5), lambda: [torch.randn(5, 2, 3)]),
    "LSTM projected": (lambda: nn.LSTM(3, 4, proj_size=2), lambda: [torch.randn(5, 2, 3)]),
    "GRU": (lambda: nn.GRU(3, 4, 2, bidirectional=True), lambda: [torch.randn(5, 2, 3)]),
    "GRU without bias": (lambda: nn.GRU(3, 4, bias=False), lambda: [torch.randn(5, 2, 3)]),
    "LSTMCell": (lambda: nn.LSTMCell(3, 4), lambda: [torch.randn(2, 3)]),
    "GRUCell": (lambda: nn.GRUCell(3, 4), lambda: [torch.randn(2, 3)]),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(4, 2), lambda: [torch.randn(3, 2, 4)] * 3),
    "TransformerEncoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2),
        lambda: [torch.randn(2, 3, 4)],
    ),
    "Transformer": (lambda: nn.Transformer(4, 2, 1, 1, 8), lambda: [torch.randn(3, 2, 4), torch.randn(2, 2, 4)]),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), lambda: [torch.randn(1, 4, 2, 2)]),
    "Fold": (lambda: nn.Fold((4, 4), 2), lambda: [torch.randn(1, 4, 9)]),
    "CosineSimilarity": (lambda: nn.CosineSimilarity(), lambda: [torch.randn(2, 4), torch.randn(2, 4)]),
    "CrossEntropyLoss": (
        lambda: nn.CrossEntropyLoss(label_smoothing=0.1),
        lambda: [torch.randn(3, 5), ints(3, high=5)],
    ),
    "NLLLoss": (lambda: nn.NLLLoss(), lambda: [torch.randn(3, 5).log_softmax(1), ints(3, high=5)]),
    "BCEWithLogitsLoss": (lambda: nn.BCEWithLogitsLoss(), lambda: [torch.randn(4), torch.rand(4)]),
    "KLDivLoss": (
        lambda: nn.KLDivLoss(reduction="batchmean"),
        lambda: [torch.randn(2, 3).log_softmax(1), torch.rand(2, 3)],
    ),
    "HuberLoss": (lambda: nn.HuberLoss(), lambda: [torch.randn(4), torch.randn(4)]),
    "TripletMarginLoss": (lambda: nn.TripletMarginLoss(), lambda: [torch.randn(2, 3) for _ in range(3)]),
    "CTCLoss": (
        lambda: nn.CTCLoss(),
        lambda: [
            torch.randn(6, 2, 4).log_softmax(2),
            ints(2, 3, high=3) + 1,
            torch.tensor([6, 6]),
            torch.tensor([3, 2]),
        ],
    ),
    "AdaptiveLogSoftmaxWithLoss": (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6]),
        lambda: [torch.randn(5, 4), ints(5, high=10)],
    ),
}


def flat(result):
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


# PyTorch's own warnings about these layers, on the host as well
@pytest.mark.filterwarnings(
    "ignore:LSTM with projections", "ignore:enable_nested_tensor is True", "ignore:Initializing zero"
)
@pytest.mark.parametrize("kind", ZOO)
def test_forward_and_backward_equal_the_hosts(kind):
    make, draw = ZOO[kind]
    torch.manual_seed(1)
    on_host, inputs = make(), draw()
    there = copy.deepcopy(on_host).to(GPU)
    sides = []
    for model, device in ((on_host, "cpu"), (there, GPU)):
        arguments = [x.detach().to(device).requires_grad_(x.is_floating_point()) for x in inputs]
        torch.manual_seed(2)
        results = flat(model(*arguments))
        assert {str(each.device) for each in results} == {device}
        sum((each * each).sum() for each in results if each.requires_grad).backward()
        sides.append([*results, *(x.grad for x in arguments), *(p.grad for p in model.parameters())])
    for host, card in zip(*sides, strict=True):
        assert (host is None) == (card is None)
        if card is not None:
            assert str(card.device) == GPU
            torch.testing.assert_close(card.cpu(), host)


def test_packed_sequences():
    from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence

    rows = [torch.randn(n, 3) for n in (4, 2, 3)]
    model = nn.LSTM(3, 5)
    there = copy.deepcopy(model).to(GPU)
    padded = pad_sequence([row.to(GPU) for row in rows])
    packed = pack_padded_sequence(padded, torch.tensor([4, 2, 3]), enforce_sorted=False)
    assert str(packed.data.device) == GPU
    assert packed.batch_sizes.device.type == "cpu"
    result, lengths = pad_packed_sequence(there(packed)[0])
    wanted, _ = pad_packed_sequence(model(pack_sequence(rows, enforce_sorted=False))[0])
    assert lengths.tolist() == [4, 2, 3]
    torch.testing.assert_close(result.cpu(), wanted)
    assert packed.to("cpu").data.device.type == "cpu"
    result.sum().backward()


def test_attention_masks_and_fast_paths():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2).eval()
    there = copy.deepcopy(model).to(GPU)
    x = torch.randn(2, 3, 4)
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    with torch.no_grad():
        for kwargs in ({}, {"mask": mask, "is_causal": True}):
            moved = {name: each.to(GPU) if isinstance(each, torch.Tensor) else each for name, each in kwargs.items()}
            torch.testing.assert_close(there(x.to(GPU), **moved).cpu(), model(x, **kwargs))


MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "additive": {"attn_mask": torch.linspace(-1, 1, 256).reshape(16, 16)},
    "boolean": {"attn_mask": torch.arange(256).reshape(16, 16) % 3 > 0},
    "scaled": {"scale": 0.5},
    "shared heads": {"enable_gqa": True},
}


@pytest.mark.parametrize("form", MASKS)
def test_attention_equals_the_hosts_bit_for_bit(form):
    heads = 2 if form == "shared heads" else 4
    drawn = [torch.randn(2, 4, 16, 8), torch.randn(2, heads, 16, 8), torch.randn(2, heads, 16, 8)]
    sides = []
    for device in ("cpu", GPU):
        leaves = [x.clone().to(device).requires_grad_() for x in drawn]
        options = {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in MASKS[form].items()}
        out = nn.functional.scaled_dot_product_attention(*leaves, **options)
        out.square().sum().backward()
        sides.append([out, *(x.grad for x in leaves)])
    for host, card in zip(*sides, strict=True):
        assert str(card.device) == GPU
        assert torch.equal(card.cpu(), host)


def test_attention_of_tensors_that_are_not_plain():
    """The formula computes what the fused kernel cannot: a gradient of the mask, ``vmap``, dropout."""
    q, k, v = (torch.randn(2, 4, 16, 8, device=GPU) for _ in range(3))
    attend = nn.functional.scaled_dot_product_attention
    mask = torch.zeros(16, 16, device=GPU, requires_grad=True)
    attend(q, k, v, attn_mask=mask).sum().backward()
    assert str(mask.grad.device) == GPU
    torch.testing.assert_close(torch.vmap(attend)(q, k, v), attend(q, k, v))
    with pytest.raises(RuntimeError, match="same device"):
        attend(q, k.cpu(), v)
    assert str(attend(q, k, v, dropout_p=0.5).device) == GPU


KERNELS_OF_CUDA = {
    "flash": (torch.ops.aten._scaled_dot_product_flash_attention, ()),
    "efficient": (torch.ops.aten._scaled_dot_product_efficient_attention, (None, True)),
    "cudnn": (torch.ops.aten._scaled_dot_product_cudnn_attention, (None, True)),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", KERNELS_OF_CUDA)
def test_cudas_operators_for_attention_compute_what_the_host_computes(kernel, causal):
    drawn, (op, rest) = [torch.randn(2, 4, 16, 8) for _ in range(3)], KERNELS_OF_CUDA[kernel]
    host = [x.clone().requires_grad_() for x in drawn]
    card = [x.to(GPU).requires_grad_() for x in drawn]
    expected = nn.functional.scaled_dot_product_attention(*host, is_causal=causal, scale=0.3)
    found = op(*card, *rest, 0.0, causal, scale=0.3)[0]
    for out in (expected, found):
        out.square().sum().backward()
    for one, other in zip([found, *(x.grad for x in card)], [expected, *(x.grad for x in host)], strict=True):
        assert str(one.device) == GPU
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS_OF_CUDA)
def test_cudas_attention_drops_the_same_weights_in_both_passes(kernel):
    leaves = [torch.randn(1, 2, 4, 8, dtype=torch.float64, device=GPU) for _ in range(3)]
    op, rest = KERNELS_OF_CUDA[kernel]

    def attend(*leaves):
        torch.manual_seed(3)
        return op(*leaves, *rest, 0.4, False)[0]

    assert torch.autograd.gradcheck(attend, [x.requires_grad_() for x in leaves])
    torch.manual_seed(4)
    assert not torch.equal(attend(*leaves), op(*leaves, *rest, 0.4, False)[0]), "each call draws others"


def test_cudas_attention_knows_packed_sequences_windows_and_shared_heads():
    """`torch.nn.attention.varlen` and jagged tensors call these operators."""
    lengths, flash = [3, 1, 5], torch.ops.aten._flash_attention_forward
    ends = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32, device=GPU)
    rows = [torch.randn(sum(lengths), heads, 8) for heads in (4, 2, 2)]
    card = [x.to(GPU).requires_grad_() for x in rows]
    options = {"window_size_left": 1, "window_size_right": 0}
    found = flash(*card, ends, ends, 5, 5, 0.0, False, False, **options)[0]
    found.square().sum().backward()
    host = [x.clone().requires_grad_() for x in rows]
    parts = []
    for sequence in zip(*(x.split(lengths) for x in host), strict=True):
        q, k, v = (x.transpose(0, 1)[None] for x in sequence)
        near = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril().triu(-1)
        out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=near, enable_gqa=True)
        parts.append(out[0].transpose(0, 1))
    torch.cat(parts).square().sum().backward()
    for one, other in zip([found, *(x.grad for x in card)], [torch.cat(parts), *(x.grad for x in host)], strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5)
    with pytest.raises(NotImplementedError, match="alibi_slopes"):
        flash(*card, ends, ends, 5, 5, 0.0, False, False, alibi_slopes=torch.ones(4, device=GPU))


TRACED = {
    "convolutions": lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 2, 2)),
    "recurrent": lambda: nn.LSTMCell(6, 6),
    "attention": lambda: nn.TransformerEncoderLayer(6, 2, batch_first=True),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("kind", TRACED)
def test_traced_layers_compute_from_their_input(kind):
    """`torch.jit.trace` records each operator: a result that it does not know becomes a constant."""
    layer = TRACED[kind]().to(GPU).eval()
    shape = {"convolutions": (2, 1, 8, 8), "recurrent": (2, 6), "attention": (2, 3, 6)}[kind]
    # PyTorch checks a trace without gradients, where its attention takes another path: on the CPU, too.
    traced = torch.jit.trace(layer, torch.randn(shape, device=GPU), check_trace=kind != "attention")
    x, results = torch.randn(shape, device=GPU), []
    for compute in (layer, traced):
        leaf = x.clone().requires_grad_()
        out = compute(leaf)
        out = out[0] if isinstance(out, tuple) else out
        layer.zero_grad()
        out.square().sum().backward()
        results.append([out, leaf.grad, *(p.grad for p in layer.parameters())])
    for expected, got in zip(*results, strict=True):
        assert str(got.device) == GPU
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("shape", [(7, 3, 4), (7, 3, 2, 5), (7, 3)])
def test_statistics_of_parts_normalise_a_batch_as_a_whole(dtype, shape):
    """The operators of `torch.nn.SyncBatchNorm`, on two parts of different sizes: as `batch_norm` on all rows."""
    torch.manual_seed(4)
    x, grad = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    weight, bias, mean, variance = (torch.rand(3, dtype=dtype if dtype is torch.float64 else None) for _ in range(4))
    wide = x.float() if dtype is torch.float16 else x.clone()
    leaves = [each.clone().requires_grad_() for each in (wide, weight, bias)]
    running = [mean.clone(), variance.clone()]
    expected = torch.nn.functional.batch_norm(leaves[0], *running, *leaves[1:], training=True, momentum=0.1, eps=1e-5)
    expected.backward(grad.to(wide.dtype))

    parts, grads = x.to(GPU).split([2, 5]), grad.to(GPU).split([2, 5])
    weight, bias, mean, variance = (each.to(GPU) for each in (weight, bias, mean, variance))
    counts = torch.tensor([part.numel() // 3 for part in parts], dtype=weight.dtype, device=GPU)
    found = [torch.batch_norm_stats(part, 1e-5) for part in parts]
    means, inverses = (torch.stack(each) for each in zip(*found, strict=True))
    m, s = torch.batch_norm_gather_stats_with_counts(parts[0], means, inverses, mean, variance, 0.1, 1e-5, counts)
    results = [torch.batch_norm_elemt(part, weight, bias, m, s, 1e-5) for part in parts]
    pairs = zip(grads, parts, strict=True)
    sums = [torch.batch_norm_backward_reduce(dy, part, m, s, weight, True, True, True) for dy, part in pairs]
    dy, dy_xmu, grad_weight, grad_bias = (sum(each) for each in zip(*sums, strict=True))
    pairs = zip(grads, parts, strict=True)
    inputs = [torch.batch_norm_backward_elemt(g, part, m, s, weight, dy, dy_xmu, counts.int()) for g, part in pairs]

    close = {"rtol": 2e-3, "atol": 2e-3} if dtype is torch.float16 else {}
    for one, other in [
        (torch.cat(results), expected),
        (torch.cat(inputs), leaves[0].grad),
        (grad_weight, leaves[1].grad),
        (grad_bias, leaves[2].grad),
        (mean, running[0]),
        (variance, running[1]),
    ]:
        assert str(one.device) == GPU
        torch.testing.assert_close(one.cpu().to(other.dtype), other.detach(), **close)
