"""Tests of `devshim.transfers.dlpack`: the data read from a capsule matches the array from which it was made."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from devshim.transfers import dlpack

PYTHON = ctypes.PyDLL(None)
PYTHON.PyCapsule_New.restype = ctypes.py_object
PYTHON.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)

LAYOUTS: dict[str, np.ndarray] = {
    "contiguous": np.arange(24.0).reshape(2, 3, 4),
    "one axis": np.arange(5, dtype="int16"),
    "every other": np.arange(12, dtype="int32")[::2],
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "backwards": np.arange(6, dtype="float32")[::-1],
    "backwards along one axis": np.arange(6.0).reshape(2, 3)[:, ::-1],
    "starting later": np.arange(24.0).reshape(4, 6)[1:, 2:5],
    "0-d": np.array(3.5),
    "empty": np.zeros((0, 3)),
    "an axis of one": np.arange(6.0).reshape(2, 3).T[:, :1],
}


class Made:
    """A capsule made by hand over an array, of either version and any dtype, even ones that NumPy does not export."""

    def __init__(self, array: np.ndarray, versioned: bool, form: tuple[int, int, int] | None = None) -> None:
        self.array, self.versioned = array, versioned
        self.managed = dlpack.DLManagedTensorVersioned(major=1) if versioned else dlpack.DLManagedTensor()
        tensor = self.tensor = self.managed.tensor
        tensor.data, tensor.device_type, tensor.ndim = array.ctypes.data, dlpack.CPU, array.ndim
        tensor.code, tensor.bits, tensor.lanes = form or dlpack.FORMS[array.dtype.name]
        if array.ndim:  # otherwise both stay NULL, which the protocol allows
            extent = ctypes.c_int64 * array.ndim
            tensor.shape, tensor.strides = extent(*array.shape), extent(*steps(array))

    def capsule(self, name: bytes | None = None) -> Any:
        self.name = name or (b"dltensor_versioned" if self.versioned else b"dltensor")  # a capsule does not copy it
        return PYTHON.PyCapsule_New(ctypes.addressof(self.managed), self.name, None)

    def read(self) -> dlpack.TensorInfo:
        return dlpack.read(self.capsule(), versioned=True)


def steps(array: np.ndarray) -> tuple[int, ...]:
    return tuple(step // array.itemsize for step in array.strides)


def output(offered: dlpack.TensorInfo) -> tuple[object, ...]:
    return (offered.device, offered.dtype, offered.shape, offered.strides, offered.address)


def true(array: np.ndarray) -> tuple[object, ...]:
    return ((1, 0), array.dtype.name, array.shape, steps(array), array.ctypes.data)


NUMPY = np.lib.NumpyVersion(np.__version__)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("versioned", [False, True])
def test_a_capsule_made_by_hand(layout: str, versioned: bool) -> None:
    array = LAYOUTS[layout]
    offered = Made(array, versioned).read()
    assert output(offered) == true(array)
    assert offered.read_only is (False if versioned else None)
    assert offered.is_contiguous == array.flags.c_contiguous
    assert offered.has_negative_strides == layout.startswith("backwards")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numpys_own_capsule(layout: str) -> None:
    array = LAYOUTS[layout]
    offered = dlpack.read(array.__dlpack__())
    if array.flags.c_contiguous:  # NumPy 1 leaves such strides out, so those of C order are reported
        assert offered.is_contiguous
        offered = offered._replace(strides=steps(array))
    assert output(offered) == true(array)


if NUMPY >= "2.1.0":

    @pytest.mark.parametrize("frozen", [False, True])
    def test_numpys_own_versioned_capsule(frozen: bool) -> None:
        array = np.arange(6.0).reshape(2, 3).T
        array.flags.writeable = not frozen
        offered = dlpack.read(array.__dlpack__(max_version=(1, 0)), versioned=True)
        assert output(offered) == true(array)
        assert offered.read_only is frozen


@pytest.mark.parametrize(("flags", "read_only"), [(0, False), (1, True), (2, False), (3, True)])
def test_read_only_is_one_flag_of_several(flags: int, read_only: bool) -> None:
    """Flag 2 says that the producer made a copy."""
    made = Made(np.ones(3), True)
    made.managed.flags = flags
    assert made.read().read_only is read_only


@pytest.mark.parametrize("name", sorted(set(dlpack.FORMS) - {"bfloat16"}))
def test_every_dtype_by_its_name(name: str) -> None:
    array = np.ones(2, name)
    assert Made(array, False).read().dtype == name
    if name != "bool" or NUMPY >= "1.25.0":
        assert dlpack.read(array.__dlpack__()).dtype == name


STANDARD = {
    "bool": (6, 8, 1),
    "bfloat16": (4, 16, 1),
    "int8": (0, 8, 1),
    "uint16": (1, 16, 1),
    "float16": (2, 16, 1),
    "float64": (2, 64, 1),
    "complex64": (5, 64, 1),
    "complex128": (5, 128, 1),
    "float8_e4m3fn": (10, 8, 1),
    "float8_e5m2": (12, 8, 1),
}
"""The constants of DLPack's header: DLDataTypeCode, bits and lanes."""


@pytest.mark.parametrize("name", STANDARD)
def test_the_numbers_are_dlpacks_own(name: str) -> None:
    assert {**dlpack.FORMS, **dlpack.SMALL}[name] == STANDARD[name]
    offered = dlpack.TensorInfo((1, 0), name, (2,), (1,), 4096, False)
    assert offered.itemsize == STANDARD[name][1] // 8


def test_bfloat16_which_numpy_lacks() -> None:
    assert Made(np.ones(2, "uint16"), False, dlpack.FORMS["bfloat16"]).read().dtype == "bfloat16"


@pytest.mark.parametrize("form", [(3, 64, 1), (2, 32, 4), (1, 1, 1), (0, 4, 1), (10, 8, 1)])
def test_a_dtype_without_a_name_is_described_by_its_numbers(form: tuple[int, int, int]) -> None:
    """An opaque handle, vectors of four, MXNet's bool, a nibble and an 8-bit float are not mistaken for others."""
    told = Made(np.ones(2, "uint8"), False, form).read().dtype
    assert told not in dlpack.FORMS
    assert all(str(number) in told for number in form)


@pytest.mark.parametrize("shape", [(2, 3, 4), (5,), (0, 3), (1, 2, 1)])
def test_without_strides_the_order_is_c(shape: tuple[int, ...]) -> None:
    made = Made(np.zeros(shape, "int8"), False)
    made.tensor.strides = None
    offered = made.read()
    assert offered.is_contiguous
    assert not offered.has_negative_strides
    if 0 not in shape:
        assert offered.strides == np.zeros(shape, "int8").strides


def test_strides_of_axes_that_nobody_steps_along_do_not_matter() -> None:
    made = Made(np.zeros((2, 1, 3)), False)
    made.tensor.strides[1] = 777
    assert made.read().is_contiguous
    made.tensor.strides[0] = 4
    assert not made.read().is_contiguous


def test_the_address_counts_the_byte_offset() -> None:
    made = Made(np.arange(4.0), False)
    made.tensor.data, made.tensor.byte_offset = made.array.ctypes.data - 256, 256
    assert made.read().address == made.array.ctypes.data


def test_the_device_is_reported_unchanged() -> None:
    made = Made(np.ones(1), True)
    made.tensor.device_type, made.tensor.device_id = dlpack.CUDA_HOST, 3
    assert made.read().device == (3, 3)
    assert dlpack.CUDA_HOST in dlpack.HOST
    assert dlpack.CUDA not in dlpack.HOST


def test_what_is_no_capsule_is_refused() -> None:
    array = np.ones(2)
    used = array.__dlpack__()

    class Once:
        def __dlpack__(self, **options: object) -> Any:
            return used

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    np.from_dlpack(Once())
    for refused in (None, array, used, Made(array, False).capsule(b"something")):
        with pytest.raises(BufferError, match="DLPack capsule cannot be read"):
            dlpack.read(refused, versioned=True)
    with pytest.raises(BufferError, match="DLPack capsule cannot be read"):
        dlpack.read(Made(array, True).capsule())  # a versioned one was not requested


def test_reading_takes_nothing() -> None:
    array = np.arange(3.0)
    capsule = array.__dlpack__()
    assert dlpack.read(capsule) == dlpack.read(capsule)
    shared = np.from_dlpack(dlpack.Exporter((1, 0), lambda stream: capsule))
    array[0] = 7
    assert shared[0] == 7


def test_what_is_changed_in_a_capsule_its_consumer_sees() -> None:
    array = np.arange(3.0)
    capsule = array.__dlpack__()
    dlpack.managed_tensor(capsule).tensor.shape[0] = 2
    assert np.from_dlpack(dlpack.Exporter((1, 0), lambda stream: capsule)).tolist() == [0.0, 1.0]


def test_an_exporter_speaks_todays_protocol() -> None:
    streams: list[Any] = []
    exported = dlpack.Exporter((2, 1), streams.append)
    assert exported.__dlpack_device__() == (2, 1)
    exported.__dlpack__(stream=5, max_version=(1, 0), dl_device=(2, 1), copy=False)
    exported.__dlpack__()
    assert streams == [5, None]
    for asked in ({"copy": True}, {"dl_device": (2, 0)}, {"dl_device": (1, 0)}):
        with pytest.raises(BufferError, match="where it is"):
            exported.__dlpack__(**asked)
    assert streams == [5, None]


def test_the_interpreters_shared_functions_are_left_alone(python: Callable[..., str]) -> None:
    """MXNet's destructor of capsules relies on the types they have by default."""
    told = python("""
        import ctypes
        from devshim.transfers import dlpack
        for name in ("PyCapsule_GetPointer", "PyCapsule_IsValid"):
            function = getattr(ctypes.pythonapi, name)
            print(function.restype is ctypes.c_int, function.argtypes)
    """)
    assert told.split() == ["True", "None"] * 2


class Older:
    """A producer of the older protocol, whose device has no number."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, None]:
        return (1, None)

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.array.__dlpack__()


def test_a_checked_producer_shows_its_capsules_first() -> None:
    array = np.arange(3.0)
    seen: list[dlpack.TensorInfo] = []
    checked = dlpack.ValidatingExporter(Older(array), seen.append)
    assert checked.__dlpack_device__() == (1, 0)
    shared = np.from_dlpack(dlpack.Exporter((1, 0), lambda stream: checked.__dlpack__(stream=stream)))
    array[0] = 7
    assert shared[0] == 7
    assert output(seen[0]) == true(array)
    with pytest.raises(TypeError, match="max_version"):  # a newer consumer must learn that the producer is older
        checked.__dlpack__(max_version=(1, 0))


def test_what_the_check_refuses_the_consumer_never_gets() -> None:
    def refuse(offered: dlpack.TensorInfo) -> None:
        raise BufferError(f"no {offered.dtype}")

    with pytest.raises(BufferError, match="no float64"):
        np.from_dlpack(dlpack.ValidatingExporter(np.arange(3.0), refuse))


@pytest.mark.parametrize(
    ("error", "why"), [(BufferError("because\nand so on"), "because"), (ValueError(), "ValueError")]
)
def test_the_refusal_says_who_refuses_what_and_why(error: Exception, why: str) -> None:
    from devshim.errors import messages
    from devshim.registry import registry

    numpy = registry.load("numpy")
    assert numpy is not None
    told = messages.not_accepted(numpy, np.ones(1), error).problem
    assert told == f"NumPy does not accept the memory of this ndarray: {why}"


@pytest.mark.parametrize("versioned", [False, True])
def test_only_strides_that_nobody_steps_along_are_left_out(versioned: bool) -> None:
    array = np.arange(6.0).reshape(3, 1, 2)
    odd = np.lib.stride_tricks.as_strided(array, array.shape, (16, 40, 8))
    for given, kept in ((array, True), (odd, False), (array.T, True), (LAYOUTS["every other"], True)):
        made = Made(given, versioned)
        before = made.read()
        capsule = made.capsule()
        dlpack.normalize_strides(capsule)
        assert bool(made.tensor.strides) is kept
        assert dlpack.read(capsule, versioned=True) == (before if kept else before._replace(strides=(2, 2, 1)))


def test_elements_without_memory_are_refused() -> None:
    for shape, refused in (((2,), True), ((), True), ((0, 3), False)):
        made = Made(np.zeros(shape), versioned=False)
        made.tensor.data = None
        if refused:
            with pytest.raises(BufferError, match="no memory"):
                made.read()
        else:
            assert made.read().address == 0
