"""The platforms of GPUs: which software drives them, which names they have, and which dtypes they cannot hold.

``gpu`` is the GPU of the framework, from any vendor. Its platform is ``"cuda"``, ``"rocm"``, ``"mps"`` or ``"metal"``
(Apple), ``"xpu"`` or ``"oneapi"`` (Intel), or the name that a plug-in gives its devices. A user may write the name of a
platform for ``gpu``. `devshim.registry.platform_names` refuses that name where the GPU is of another platform.
"""

from __future__ import annotations

from devshim.devices.device import Device
from devshim.errors import ArgumentError, ConversionError
from devshim.errors.formatting import show

__all__ = ["DTYPE_REASONS", "LIKE", "family", "maker", "missing_dtype_error", "missing_dtypes", "name_in", "read_like"]

_FAMILIES = {
    **dict.fromkeys(("cuda", "rocm", "hip"), "cuda"),
    **dict.fromkeys(("mps", "metal"), "mps"),
    **dict.fromkeys(("xpu", "oneapi"), "xpu"),
}
"""The name of a platform -> the family whose names are all accepted: PyTorch also names AMD GPUs ``cuda``."""

_MAKERS = {
    "cuda": "an NVIDIA GPU (platform cuda)",
    "rocm": "an AMD GPU (platform rocm)",
    "mps": "an Apple GPU (platform {})",
    "xpu": "an XPU, such as Intel's (platform {})",
}

LIKE = {"cuda": 64, "mps": 1, "xpu": 64}
"""The platforms that simulated GPUs can imitate -> the largest number of GPUs."""

_MPS_FLOAT64 = (
    "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
    "Please use float32 instead."
)
_MPS_COMPLEX128 = "Trying to convert ComplexDouble to the MPS backend but it does not have support for that dtype."
_XPU_FLOAT64 = "Required aspect fp64 is not supported on the device"

DTYPE_REASONS: dict[str, dict[str, str]] = {
    "mps": {"float64": _MPS_FLOAT64, "complex128": _MPS_COMPLEX128},
    "xpu": {"float64": _XPU_FLOAT64, "complex128": _XPU_FLOAT64},
}
"""Family -> the dtypes that its GPUs cannot hold -> the words in which PyTorch refuses them.

Intel's larger GPUs have float64; the Arc GPUs, which a simulation imitates, do not.
"""


def family(platform: str) -> str:
    """Return the family of a platform: ``"cuda"`` for ``"rocm"``, ``"mps"`` for ``"metal"``."""
    return _FAMILIES.get(platform, platform)


def name_in(text: str) -> str | None:
    """Return the name of a platform in the text of a device, such as ``"mps"`` in ``"mps:0"``; None without one."""
    lower = text.lower()
    return next((name for name in _FAMILIES if name in lower), None)


def read_like(like: object, gpus: int, name: str = "like") -> str:
    """Return the platform that simulated GPUs imitate; ``name`` is its name in an error.

    Raises:
        ArgumentError: It is not one of `LIKE`, or machines of this platform have fewer than ``gpus`` GPUs.
    """
    if not isinstance(like, str) or like not in LIKE:
        accepted = ", ".join(map(repr, LIKE))
        msg = f"{name} is {show(like)}, and it must be one of {accepted}"
        raise ArgumentError(msg, "ds.simulate(1, like='mps')" if name == "like" else f"set {name}=mps")
    if gpus > LIKE[like]:
        msg = f"{gpus} GPUs like {like!r} were asked for, and a machine of that platform has {LIKE[like]}"
        raise ArgumentError(msg, f"ds.simulate({LIKE[like]}, like={like!r}), or DEVSHIM_SIMULATE_GPUS={LIKE[like]}")
    return like


def maker(platform: str) -> str:
    """Return a GPU's maker and platform as words, such as ``"an Apple GPU (platform mps)"``."""
    words = _MAKERS.get(platform) or _MAKERS.get(family(platform))
    return f"a GPU of the platform {platform}" if words is None else words.format(platform)


def missing_dtype_error(device: Device, dtype: str, platform: str) -> ConversionError:
    """Return the error for a dtype that the GPUs of a platform cannot hold, in the words of PyTorch."""
    words = DTYPE_REASONS[family(platform)][dtype]
    narrow = {"float64": "float32", "complex128": "complex64"}.get(dtype, "float32")
    return ConversionError(
        f"{device} cannot hold {dtype}: {words}",
        f"make it {narrow} first, for example ds.asarray(x, dtype={narrow!r}), or leave it on the CPU",
    )


def missing_dtypes(platform: str, *, simulated: bool = False) -> frozenset[str]:
    """Return the dtypes that no GPU of a platform can hold; for simulated GPUs, those that devshim refuses there."""
    if family(platform) == "xpu" and not simulated:
        return frozenset()
    return frozenset(DTYPE_REASONS.get(family(platform), ()))
