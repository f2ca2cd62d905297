"""The gaps of MXNet and of this adapter, with reasons.

The support table is generated from them, so this module imports no framework.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from devshim.contract.backend import Gap

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_TRACED_GRADIENTS = Gap(
    "upstream",
    "a hybridized block is a graph of its outputs",
    "differentiate the function that calls it",
)

GAPS: Mapping[str, Gap] = MappingProxyType(
    {
        "ranks": Gap(
            "upstream",
            "its kvstore sums only float16 and float32, and waits forever for a rank that has ended",
        ),
        "generator": Gap(
            "upstream",
            "MXNet has one generator for each device, whose state cannot be read or replaced, and operators take no "
            "other",
            "call ds.random.Generator(seed, portable=True), which works on every framework",
        ),
        "higher_order": Gap(
            "upstream",
            "mx.autograd differentiates only with respect to arrays that no operator made, and most of its operators "
            "have no second derivative",
        ),
        "trace_gradient": _NO_TRACED_GRADIENTS,
        "trace_gradient_models": _NO_TRACED_GRADIENTS,
        "complex": Gap("upstream", "MXNet has no complex dtype"),
        "op_scope": Gap(
            "never", "MXNet's operators compute on the device of their arguments, so a scope affects only creation"
        ),
        "refuse_mixing": Gap(
            "upstream",
            "MXNet's imperative operators compare only the kind of device (GetContext in imperative_utils.h), so they "
            "accept arrays of the real gpu(0) and gpu(1) together; MXNet refuses cpu with gpu, and devshim refuses "
            "different simulated GPUs",
        ),
        "trace_place": Gap(
            "upstream",
            "a hybridized block is compiled for the device of its inputs: inside it only a move to that device works",
        ),
        "trace_on": Gap(
            "upstream",
            "a hybridized block is compiled for the device of its inputs: only that device can be the default there",
        ),
    }
)

LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "create": (
            "in a block that 1.9 hybridizes, like= and *_like are refused, because its symbols have neither a shape "
            "nor a dtype; in one that 2.0 hybridizes, so are arrays of several values, which its graph cannot contain"
        ),
        "namespace": (
            "no Fourier transforms, and nothing that needs complex numbers; in a block that 1.9 hybridizes, only "
            "functions that need neither the shape nor the dtype of their arguments"
        ),
        "models": (
            "every optimizer that MXNet registers is supported; SGLD draws its noise from the generator of its device; "
            "DCASGD with momentum fails in MXNet 1.9.1, with or without devshim; parameters on several devices at once "
            "and trainers that update on a kvstore are refused"
        ),
        "native_names": (
            "mx.rtc, cuDNN and what needs NVIDIA's driver are refused by MXNet itself; to_dlpack_for_read of an array "
            "on a simulated GPU is refused; so is float16 in the body of foreach, while_loop and cond that a graph "
            "contains; in NDArrayOp and in a kvstore's optimizer, arrays have the device cpu(0); a Gluon model that "
            "was made with native names has to be used with them"
        ),
        "guard": (
            "reports asnumpy, asscalar, masks and other methods of arrays that read values, and operands on other "
            "devices; does not report what functions such as mx.np.unique and mx.np.add read or copy internally on "
            "real cards"
        ),
    }
)

NOT_SIMULATED: Mapping[str, str] = MappingProxyType(
    {
        "mxnet.rtc": "it compiles CUDA code: write the function with MXNet operators",
        "mxnet.contrib.tensorrt": "it compiles for real GPUs only: run the model without it",
        "mxnet.library.load": "a library has no kernels for simulated GPUs: call it on mx.cpu()",
    }
)
"""A native call, or the beginning of its name, that simulated GPUs cannot run -> why, and what to do instead."""
