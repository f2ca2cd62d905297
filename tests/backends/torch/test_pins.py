"""Tests of PyTorch internals on which simulated GPUs rely, one by one, so that a new release shows which of them
changed.

Only the first is PyTorch's public interface. A test that fails here names the module to fix.
"""

from __future__ import annotations

import gc
import inspect
import weakref

import pytest
import torch
from programs import run_program

_C = torch._C
aten = torch.ops.aten


# ---------------------------------------------------------------- relabel


def test_a_capsule_keeps_strides_and_offset():
    """`relabel` returns views unchanged, including those with a dimension of one or none."""
    base = torch.arange(40)
    for size, stride, offset in (((3, 1, 4), (4, 77, 1), 2), ((2, 0), (9, 5), 0), ((5, 3), (1, 5), 1), ((4,), (0,), 3)):
        x = base.as_strided(size, stride, offset)
        y = _C._from_dlpack(_C._to_dlpack(x))
        assert (y.shape, y.stride(), y.data_ptr()) == (x.shape, x.stride(), x.data_ptr())


def test_a_capsule_is_laid_out_as_dlpack_says():
    """`relabel` finds the eight bytes of the device from the capsule's address."""
    from devshim_backends._torch.simulation.internals import relabel

    capsule = _C._to_dlpack(torch.ones(3))
    pointer = relabel.WORDS[(id(capsule) >> 3) + relabel._POINTER]
    assert relabel.WORDS[(pointer >> 3) + relabel._DEVICE] == relabel.HOST


def test_the_object_of_a_storage_lives_as_long_as_the_storage():
    """`memory` counts until a weak reference to it ends, which must be when the last tensor over it is freed."""
    x = torch.ones(3)
    gone = []
    kept = weakref.ref(x.untyped_storage(), gone.append)
    capsule = _C._to_dlpack(x)
    del x
    gc.collect()
    assert kept() is not None
    y = _C._from_dlpack(capsule)[1:]
    del capsule
    gc.collect()
    assert not gone
    del y
    gc.collect()
    assert len(gone) == 1


# ---------------------------------------------------------------- dispatch


def test_an_operator_can_be_called_at_a_key():
    """`OpOverload._op_dk`: views are computed by the CPU's kernels on tensors of a GPU."""
    assert aten.view.default._op_dk(_C.DispatchKey.CPU, torch.ones(2, 3), (6,)).shape == (6,)
    assert aten.add.Tensor._op(torch.ones(2), 1).tolist() == [2, 2]


def test_a_schema_lists_written_and_viewed_arguments():
    """`schemas` reads alias information."""
    written = [a.alias_info is not None and a.alias_info.is_write for a in aten.add_.Tensor._schema.arguments]
    assert written == [True, False, False]
    assert not aten.view.default._schema.returns[0].alias_info.is_write
    assert aten.add.Tensor._schema.returns[0].alias_info is None
    assert torch.Tag.pointwise in aten.add.Tensor.tags
    assert "Optional[Generator]" in {str(a.type) for a in aten.normal_.default._schema.arguments}


def test_registered_kernels_can_be_listed():
    """`whole` finds the operators that PyTorch would decompose, `schemas` those that resolve conjugations."""
    found = _C._dispatch_get_registrations_for_dispatch_key
    assert "aten::add.Tensor" in found("CompositeExplicitAutogradNonFunctional")
    assert "aten::add.Tensor" in found("CPU")
    assert "aten::mm" in found("Conjugate")
    assert _C._dispatch_has_kernel("aten::convolution")
    assert _C._should_allow_numbers_as_tensors("add")
    assert not _C._should_allow_numbers_as_tensors("where")


def test_memory_from_dlpack_cannot_grow():
    """`hooks` recognizes by this message that a kernel needed more memory."""
    x = _C._from_dlpack(_C._to_dlpack(torch.ones(2)))
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(100)


def test_every_operator_that_draws_takes_a_generator():
    """A kernel that drew from the host's generator without receiving one would advance it (`generators`)."""
    drawing = []
    for name in _C._dispatch_get_registrations_for_dispatch_key("CPU"):
        base, _, overload = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(aten, base, None), overload or "default", None) if name.startswith("aten::") else None
        if op is not None and torch.Tag.nondeterministic_seeded in op.tags:
            drawing.append((base, any("Generator" in str(a.type) for a in op._schema.arguments)))
    assert drawing
    ours = {
        "native_dropout",
        "_fused_sdp_choice",
        "_scaled_dot_product_flash_attention_for_cpu",
    }  # the last: unreached
    assert {base for base, takes in drawing if not takes} <= ours


def test_modes_and_autocast_can_be_read_and_excluded():
    """`hooks` keeps the user's modes and the CPU's autocast out of its own calls."""
    assert _C._len_torch_function_stack() == 0
    assert not _C._is_any_autocast_enabled()
    with torch.device("meta"), torch.autocast("cpu"):
        assert _C._len_torch_function_stack() == 1
        assert _C._is_any_autocast_enabled()
        casts = _C.DispatchKeySet(_C.DispatchKey.AutocastCPU)
        with _C.DisableTorchFunction(), _C._ExcludeDispatchKeyGuard(casts):
            x = torch.ones(2, 2)
            assert x.device.type == "cpu"
            assert (x @ x).dtype is torch.float32


# ---------------------------------------------------------------- registration


def test_a_device_in_python_is_registered_and_known_everywhere(tmp_path):
    """`switch`: hook, guard and name, in PyTorch's only call for it."""
    run_program(
        """
import torch
from torch import _C
setup = torch.utils.backend_registration._setup_privateuseone_for_python_backend
assert _C._get_privateuse1_backend_name() == "privateuseone"

class Hook(_C._acc.PrivateUse1Hooks):
    def is_available(self): return True
    def has_primary_context(self, index): return True
    def is_built(self): return True

class Guard(_C._acc.DeviceGuard):
    def type_(self): return _C._autograd.DeviceType.PrivateUse1

import types
setup("pin", backend_module=types.ModuleType("torch.pin"), hook=Hook(), device_guard=Guard())
assert _C._get_privateuse1_backend_name() == "pin"
assert torch.device("pin", 3).type == "pin"
assert _C._accelerator_getAccelerator() == torch.device("pin")
stream = torch.Stream(stream_id=0, device_index=1, device_type=20)
assert stream.device == torch.device("pin", 1)
""",
        tmp_path,
        "-W",
        "error",
    )


def test_kdlextdev_is_read_as_the_device(tmp_path):
    """`relabel`: DLPack's 12 is PrivateUse1, with its index; and the guard's one device is not queried."""
    run_program(
        """
import devshim as ds, torch
ds.use("torch"); ds.simulate(4)
from devshim_backends._torch.simulation.internals import relabel
x = torch.ones(3)
y = relabel.relabel(x, relabel.CODES[3])
assert y.device == torch.device("sim:3") and y.data_ptr() == x.data_ptr() and type(y) is torch.Tensor
z = relabel.to_host(y)
assert z.device.type == "cpu" and z.data_ptr() == x.data_ptr()
""",
        tmp_path,
        "-W",
        "error",
    )


def test_a_word_of_a_tensor_contains_its_keys():
    """`replaced_data`: with another tensor's keys, a tensor takes over its data."""
    from devshim_backends._torch.simulation.internals import relabel, replaced_data

    x, y = torch.nn.Parameter(torch.ones(2)), torch.empty(3, device="meta")
    loss = (x * 3).sum()
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        x.data = y
    words = [(each._cdata >> 3) + replaced_data.KEYS for each in (x, y)]
    assert [relabel.WORDS[word] for word in words] == [_C._dispatch_keys(each).raw_repr() for each in (x, y)]
    relabel.WORDS[words[0]] = relabel.WORDS[words[1]]
    x.data = y
    assert (x.device, x.shape) == (y.device, y.shape)
    x.data = torch.empty(2, device="meta")
    assert x.grad_fn is None
    loss.backward()
    assert x.grad.tolist() == [3, 3]


# ---------------------------------------------------------------- autograd


def test_a_node_has_a_number_and_devices():
    """`backward_nodes`: which node runs, when it was made, and on which device its gradients are."""
    x, nodes = torch.ones(3, requires_grad=True), []
    number = _C._autograd._get_sequence_nr()
    y = x * 2
    assert _C._autograd._get_sequence_nr() == number + 1
    for each in (x, y):
        each.register_hook(lambda _: nodes.append(_C._current_autograd_node()))
    y.sum().backward()
    assert _C._current_autograd_node() is None
    assert nodes[0] is y.grad_fn
    assert [each._sequence_nr() for each in nodes] == [number, (1 << 64) - 1]
    assert [[data.device.type for data in each._input_metadata] for each in nodes] == [["cpu"], ["cpu"]]


def test_every_backward_pass_goes_through_one_engine(monkeypatch):
    """`engine`: ``Variable._execution_engine`` is looked up at each call, and can be our class."""
    from torch.autograd.variable import Variable

    seen = []

    class Engine(_C._ImperativeEngine):
        def run_backward(self, *args, **kwargs):
            seen.append(1)
            with torch.autograd.set_multithreading_enabled(False):
                return super().run_backward(*args, **kwargs)

    monkeypatch.setattr(Variable, "_execution_engine", Engine())
    x = torch.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    torch.autograd.grad((x * 2).sum(), x)
    torch.func.grad(lambda y: y.sin().sum())(x.detach())
    assert len(seen) == 3
    assert x.grad is not None


# ---------------------------------------------------------------- compiler


@pytest.mark.parametrize("when", ["on", "off again"])
def test_the_compiler_loads_after_simulation(tmp_path, when):
    """Dynamo compares PyTorch's functions with its own versions of them when it is loaded, and refuses ours."""
    off = "ds.simulate(0)" if when == "off again" else ""
    run_program(
        f"""
import devshim as ds, sys, torch
ds.use("torch"); ds.simulate(2); torch.sim.set_device(1)
assert "torch._dynamo" not in sys.modules
{off}
import warnings; warnings.simplefilter("ignore")
import torch._dynamo
assert torch.compile(lambda x: torch.tensor([1.0]) + x * 2, backend="eager")(torch.ones(1)).tolist() == [3.0]
""",
        tmp_path,
        "-W",
        "error",
    )


def test_the_compiler_can_skip_frames():
    """`untraced` marks kernels with a function of the compiler that exists without loading it."""
    frames = _C._dynamo.eval_frame
    frames.set_code_exec_strategy((lambda: 0).__code__, frames._FrameExecStrategy(*[frames._FrameAction.SKIP] * 2))


# ---------------------------------------------------------------- what is patched


@pytest.mark.parametrize(
    "name",
    [
        *("getAccelerator", "getDeviceIndex", "setDeviceIndex", "exchangeDevice", "maybeExchangeDevice", "getStream"),
        *("setStream", "synchronizeDevice", "isAllocatorInitialized", "emptyCache", "getDeviceStats"),
        *("resetAccumulatedStats", "resetPeakStats"),
    ],
)
def test_torch_accelerator_calls_these_functions(name):
    """`accelerator` replaces these."""
    assert callable(getattr(_C, f"_accelerator_{name}"))


def test_dataparallel_looks_its_primitives_up():
    """`comm` adds functions to ``torch._C``, which PyTorch's own functions call through the module."""
    from torch.nn.parallel import comm

    source = inspect.getsource(comm)
    for name in ("_broadcast", "_broadcast_out", "_broadcast_coalesced", "_scatter", "_scatter_out"):
        assert f"torch._C.{name}(" in source
    for name in ("_gather", "_gather_out"):
        assert f"torch._C.{name}(" in source
    assert "nccl.is_available(" in source
