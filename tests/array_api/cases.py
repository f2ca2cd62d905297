"""Sample calls of every function of the array API standard; arrays are NumPy's, dtypes are `Dtype`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Dtype(NamedTuple):
    """A dtype among the arguments of a call."""

    name: str


class Case(NamedTuple):
    """One call of a function."""

    args: tuple[Any, ...]
    options: dict[str, Any]


def case(*args: Any, **options: Any) -> Case:
    return Case(args, options)


def f(*shape: int, dtype: str = "float32", low: float = -2.5, high: float = 3.0) -> np.ndarray:
    """Return distinct floats between two bounds, not in order."""
    count = int(np.prod(shape))
    order = (np.arange(count) * 7 + 3) % count if count % 7 else np.arange(count)[::-1]
    return np.linspace(low, high, count)[order].reshape(shape).astype(dtype)


def i(*shape: int, dtype: str = "int32", low: int = -3, high: int = 5) -> np.ndarray:
    """Return integers between two bounds, with repetitions."""
    values = np.arange(low, high)
    return np.resize(np.concatenate([values[::2], values[1::2]]), shape).astype(dtype)


def b(*shape: int) -> np.ndarray:
    return np.resize([True, False, False, True, True], shape)


def c(*shape: int, dtype: str = "complex64") -> np.ndarray:
    return (f(*shape) + 1j * f(*shape, low=-1, high=2)).astype(dtype)


SPECIAL = np.asarray([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.5], "float32")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")


def ints(*shape: int) -> list[np.ndarray]:
    return [i(*shape, dtype=name, low=0 if name[0] == "u" else -3, high=6) for name in INTS]


def floats(*shape: int, low: float = -2.5, high: float = 3.0) -> list[np.ndarray]:
    return [f(*shape, dtype=name, low=low, high=high) for name in FLOATS]


def square(dtype: str = "float32") -> np.ndarray:
    """Return a stack of two matrices that can be inverted."""
    return (f(2, 3, 3) + 4 * np.eye(3)).astype(dtype)


def positive(dtype: str = "float32") -> np.ndarray:
    """Return a stack of two positive definite matrices."""
    m = f(2, 3, 3)
    return (m @ m.swapaxes(1, 2) + 3 * np.eye(3)).astype(dtype)


CASES: dict[str, list[Case]] = {}

_DOMAINS = {"acos": (-0.9, 0.9), "asin": (-0.9, 0.9), "acosh": (1.1, 4), "atanh": (-0.9, 0.9), "log1p": (-0.5, 4)}
_DOMAINS |= dict.fromkeys(("log", "log2", "log10", "sqrt", "reciprocal"), (0.25, 9))
for name in (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log10", "log1p"),
    *("log2", "reciprocal", "sin", "sinh", "sqrt", "tan", "tanh"),
):
    low, high = _DOMAINS.get(name, (-2.5, 3.0))
    CASES[name] = [case(x) for x in floats(2, 3, low=low, high=high)] + [
        case(f(0, 2)),
        case(np.float32(0.5).reshape(())),
    ]
    if name not in ("log10", "log1p", "log2", "expm1", "reciprocal"):
        CASES[name].append(case(c(2, 3)))
for name in ("abs", "negative", "positive", "square", "sign"):
    CASES[name] = [case(x) for x in (*floats(2, 3), *ints(2, 3))] + [case(SPECIAL[3:])]
CASES["abs"].append(case(c(2, 3)))
for name in ("ceil", "floor", "round", "trunc"):
    CASES[name] = [
        case(x) for x in (*floats(3, 4), *ints(2, 3), SPECIAL, np.asarray([0.5, 1.5, 2.5, -0.5, -1.5], "float32"))
    ]
for name in ("isfinite", "isinf", "isnan"):
    CASES[name] = [case(x) for x in (SPECIAL, SPECIAL.astype("float64"), i(2, 3), c(2, 3))]
CASES["signbit"] = [case(SPECIAL[[0, 1, 3, 4, 5, 6]]), case(f(2, 3, dtype="float64"))]
CASES["logical_not"] = [case(b(2, 3)), case(b(0))]
CASES["bitwise_invert"] = [case(x) for x in (*ints(2, 3), b(2, 3))]
CASES |= {name: [case(c(2, 3)), case(c(2, 3, dtype="complex128"))] for name in ("conj", "real", "imag")}
CASES["conj"].append(case(f(2, 3)))
CASES["real"].append(case(f(2, 3)))

_MIXED = [
    (f(2, 3), f(2, 3, dtype="float64")),
    (i(2, 3, dtype="int8"), i(2, 3, dtype="int32")),
    (i(2, 3, dtype="uint8", low=0), i(2, 3, dtype="int8")),
]
for name in ("add", "subtract", "multiply", "maximum", "minimum"):
    same = [case(x, x[:1] + x[1:]) for x in (*floats(2, 3), *ints(2, 3))]
    CASES[name] = [
        *same,
        *(case(*pair) for pair in _MIXED),
        case(f(2, 3), 2),
        case(f(2, 3), 2.5),
        case(3, f(2, 3)),
        case(f(2, 1), f(3)),
    ]
CASES["maximum"].append(case(SPECIAL, SPECIAL[::-1].copy()))
CASES["minimum"].append(case(SPECIAL, SPECIAL[::-1].copy()))
CASES["add"].append(case(c(2, 3), f(2, 3)))
CASES["multiply"].append(case(c(2, 3), c(2, 3)))
CASES["divide"] = [case(x, x + 5) for x in floats(2, 3)] + [
    case(f(2, 3), 2.0),
    case(1, f(2, 3) + 9),
    case(SPECIAL, SPECIAL[::-1].copy()),
]
for name in ("floor_divide", "remainder"):
    whole = [case(x, i(2, 3, dtype=x.dtype.name, low=1, high=5)) for x in ints(2, 3)]
    CASES[name] = [case(x, f(2, 3, dtype=x.dtype.name, low=0.7, high=2)) for x in floats(2, 3)] + [
        *whole,
        case(f(2, 3), 2.0),
        case(i(2, 3), 2),
        case(i(2, 3), -2),
    ]
CASES["pow"] = [
    case(f(2, 3, low=0.5, high=3), f(2, 3)),
    case(f(2, 3, dtype="float64", low=0.5, high=3), 2),
    case(2.0, f(2, 3)),
]
CASES["pow"] += [case(x, i(2, 3, dtype=x.dtype.name, low=0, high=4)) for x in ints(2, 3)]
for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    CASES[name] = (
        [case(x, x[::-1].copy()) for x in (*floats(2, 3), *ints(2, 3))]
        + [case(*pair) for pair in _MIXED]
        + [case(f(2, 3), 1), case(SPECIAL, SPECIAL)]
    )
CASES["equal"] += [case(b(2, 3), b(2, 3)[::-1].copy()), case(c(2, 3), c(2, 3))]
for name in ("logical_and", "logical_or", "logical_xor"):
    CASES[name] = [case(b(2, 3), b(2, 3)[::-1].copy()), case(b(2, 1), b(3)), case(b(2, 3), True)]
for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    CASES[name] = [case(x, x[::-1].copy()) for x in (*ints(2, 3), b(2, 3))] + [case(i(2, 3), 3)]
for name in ("bitwise_left_shift", "bitwise_right_shift"):
    CASES[name] = [case(x, i(2, 3, dtype=x.dtype.name, low=0, high=3)) for x in ints(2, 3)] + [case(i(2, 3), 2)]
_TWO_FLOATS = [case(x, f(2, 3, dtype=x.dtype.name, low=-1, high=4)) for x in floats(2, 3)] + [
    case(f(2, 3), f(2, 3, dtype="float64"))
]
CASES |= {name: list(_TWO_FLOATS) for name in ("atan2", "copysign", "hypot", "logaddexp", "nextafter")}
CASES["nextafter"].pop()
CASES["atan2"].append(case(SPECIAL[3:], np.asarray([-1, -1, 0, -2], "float32")))
CASES["copysign"].append(case(SPECIAL[[0, 1, 3, 4]], SPECIAL[[4, 3, 1, 0]]))
CASES["hypot"].append(case(np.asarray([3e30, 0, np.inf], "float32"), np.asarray([4e30, 0, 1], "float32")))
CASES["logaddexp"].append(case(np.asarray([1000, -np.inf], "float32"), np.asarray([1000, -np.inf], "float32")))
CASES["clip"] = [
    case(f(2, 3), -1, 2),
    case(f(2, 3), min=0.5),
    case(f(2, 3), max=0.5),
    case(f(2, 3)),
    case(i(2, 3), 0, 3),
    case(f(2, 3), f(2, 3) - 1, f(2, 3)),
]

for name in ("sum", "prod"):
    CASES[name] = [case(x) for x in (*floats(2, 3), *ints(2, 3))]
    CASES[name] += [
        case(f(2, 3, 2), axis=0),
        case(f(2, 3, 2), axis=(0, 2), keepdims=True),
        case(f(2, 3), axis=-1, dtype=Dtype("float64")),
        case(f(0, 3), axis=0),
        case(i(2, 3, dtype="int8"), dtype=Dtype("int16")),
    ]
CASES["sum"].append(case(c(2, 3), axis=1))
for name in ("max", "min"):
    CASES[name] = [case(x, axis=1) for x in (*floats(2, 3), *ints(2, 3))] + [
        case(f(2, 3)),
        case(f(2, 3, 2), axis=(0, 1), keepdims=True),
        case(SPECIAL),
    ]
CASES["mean"] = [case(x) for x in floats(2, 3)] + [case(f(2, 3, 2), axis=(0, 2)), case(f(2, 3), axis=0, keepdims=True)]
for name in ("std", "var"):
    CASES[name] = [case(x) for x in floats(2, 3)] + [
        case(f(2, 3, 2), axis=(0, 2)),
        case(f(4, 3), axis=0, keepdims=True, correction=1),
        case(f(4, 3), axis=1, correction=0.5),
    ]
for name in ("all", "any"):
    CASES[name] = [
        case(b(2, 3)),
        case(b(2, 3), axis=0),
        case(b(2, 3), axis=(0, 1), keepdims=True),
        case(i(2, 3), axis=1),
        case(f(2, 3)),
        case(b(0, 3), axis=0),
    ]
for name in ("cumulative_sum", "cumulative_prod"):
    CASES[name] = [case(x, axis=1) for x in (*floats(2, 3), *ints(2, 3))] + [
        case(f(4)),
        case(f(2, 3), axis=0, include_initial=True),
        case(f(2, 3), axis=-1, dtype=Dtype("float64")),
    ]
CASES["count_nonzero"] = [case(i(2, 3)), case(b(2, 3), axis=0), case(f(2, 3), axis=(0, 1), keepdims=True)]
CASES["diff"] = [case(f(2, 4)), case(f(4, 2), axis=0), case(i(5), n=2), case(f(2, 3), prepend=f(2, 1), append=f(2, 2))]
for name in ("argmax", "argmin"):
    CASES[name] = [case(x, axis=1) for x in (*floats(2, 3), *ints(2, 3))] + [
        case(f(2, 3)),
        case(f(2, 3), axis=0, keepdims=True),
        case(f(2, 3), keepdims=True),
    ]
_SORTED = [
    case(x, axis=axis, descending=down) for x in (*floats(3, 4), *ints(3, 4)) for axis, down in ((-1, False), (0, True))
]
CASES |= {"sort": [*_SORTED, case(f(5)), case(f(5), stable=False)], "argsort": [*_SORTED, case(f(5))]}
CASES["nonzero"] = [case(b(2, 3)), case(i(2, 3)), case(f(4))]
CASES["searchsorted"] = [
    case(np.sort(f(6)), f(3)),
    case(np.sort(f(6)), f(2, 3), side="right"),
    case(f(6), f(3), sorter=np.argsort(f(6))),
]
CASES["where"] = [case(b(2, 3), x, x[::-1].copy()) for x in (*floats(2, 3), *ints(2, 3))] + [
    case(b(2, 3), f(2, 3), f(2, 3, dtype="float64")),
    case(b(2, 3), f(2, 3), 0.0),
    case(b(2, 1), f(3), f(2, 3)),
]
CASES["isin"] = [
    case(i(2, 3), i(2, low=0, high=2)),
    case(i(2, 3), i(2, low=0, high=2), invert=True),
    case(f(4), f(4)[:2]),
]
for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
    CASES[name] = [case(x) for x in (i(3, 4), i(9, dtype="int64"), f(6), b(5), i(0))]

CASES["broadcast_to"] = [case(f(3), (2, 3)), case(f(2, 1), (2, 3)), case(f(1).reshape(()), (2, 2))]
CASES["broadcast_arrays"] = [case(f(3), f(2, 1)), case(i(2, 3), f(1))]
CASES["broadcast_shapes"] = [case((2, 1), (3,)), case((1,), (0, 1))]
CASES["concat"] = [case([x, x]) for x in (*floats(2, 3), *ints(2, 3), b(2, 3))] + [
    case([f(2, 3), f(2, 1)], axis=1),
    case([f(2, 3), f(2)], axis=None),
    case([f(2, 3), f(2, 3, dtype="float64")], axis=-1),
    case((f(0, 3), f(2, 3))),
]
CASES["stack"] = [case([x, x]) for x in (*floats(2, 3), *ints(2, 3), b(2, 3))] + [
    case([f(2, 3), f(2, 3)], axis=-1),
    case((f(2, 3), f(2, 3, dtype="float64")), axis=1),
]
CASES["expand_dims"] = [case(f(2, 3), axis=0), case(f(2, 3), axis=-1), case(f(2, 3), axis=1)]
CASES["squeeze"] = [
    case(f(2, 1, 3), axis=1),
    case(f(1, 2, 1), axis=(0, 2)),
    case(f(2, 1), axis=-1),
    case(f(2, 3), axis=0),
]
CASES["flip"] = [case(f(2, 3)), case(f(2, 3), axis=1), case(f(2, 3, 2), axis=(0, -1)), case(i(3, dtype="uint8", low=0))]
CASES["moveaxis"] = [case(f(2, 3, 4), 0, 2), case(f(2, 3, 4), (0, 1), (-1, 0)), case(f(2, 3, 4), 2, 0)]
CASES["permute_dims"] = [case(f(2, 3, 4), (2, 0, 1)), case(f(2, 3), axes=(1, 0)), case(b(2, 3), (1, 0))]
CASES["repeat"] = [case(f(2, 3), 2), case(f(2, 3), 2, axis=0), case(f(2, 3), np.asarray([1, 0, 2]), axis=1)]
CASES["reshape"] = [
    case(f(2, 3), (3, 2)),
    case(f(2, 3), (-1,)),
    case(f(2, 3), (6, 1), copy=True),
    case(f(1), ()),
    case(f(0, 3), (3, 0)),
]
CASES["roll"] = [case(f(2, 3), 1), case(f(2, 3), -1, axis=1), case(f(2, 3), (1, 2), axis=(0, 1))]
CASES["tile"] = [case(f(2, 3), (2,)), case(f(2, 3), (2, 1, 2)), case(f(3), (2, 2))]
CASES["unstack"] = [case(f(2, 3)), case(f(2, 3), axis=-1)]
CASES["take"] = [
    case(f(4, 3), np.asarray([2, 0, 2]), axis=0),
    case(f(4, 3), np.asarray([1]), axis=-1),
    case(f(5), np.asarray([3, 1])),
]
CASES["take_along_axis"] = [
    case(f(2, 3), np.asarray([[2, 0], [1, 1]]), axis=1),
    case(f(2, 3), np.asarray([[1, 0, 1]]), axis=0),
    case(f(2, 3), np.asarray([[0], [2]])),
]
CASES["meshgrid"] = [case(f(2), f(3)), case(f(2), f(3), indexing="ij"), case(f(2), f(3), f(4)), case(f(2))]
CASES |= {name: [case(f(3, 4)), case(f(3, 4), k=1), case(i(2, 3, 3), k=-1)] for name in ("tril", "triu")}

_PRODUCTS = [
    (f(2, 3), f(3, 4)),
    (f(3), f(3)),
    (f(2, 3), f(3)),
    (f(3), f(3, 2)),
    (f(2, 2, 3), f(3, 4)),
    (f(2, 3), f(3, 4, dtype="float64")),
    (i(2, 3), i(3, 2)),
    (c(2, 3), c(3, 2)),
]
CASES["matmul"] = [case(*pair) for pair in _PRODUCTS] + [case(i(2, 3, dtype="int64"), i(3, 2, dtype="int64"))]
CASES["matrix_transpose"] = [case(f(2, 3)), case(f(2, 3, 4)), case(i(2, 3))]
CASES["tensordot"] = [
    case(f(2, 3, 4), f(3, 4, 2)),
    case(f(2, 3), f(3, 4), axes=1),
    case(f(2, 3), f(2, 4), axes=((0,), (0,))),
    case(f(2), f(3), axes=0),
    case(i(2, 3), i(3, 2), axes=1),
]
CASES["vecdot"] = [
    case(f(2, 3), f(2, 3)),
    case(f(3, 2), f(3, 2), axis=0) if False else case(f(3), f(2, 3)),
    case(c(2, 3), c(2, 3)),
    case(i(3), i(3)),
]

CASES["astype"] = [
    case(x, Dtype(name))
    for x in (f(2, 3), i(2, 3, dtype="int64"), b(2, 3))
    for name in ("float64", "int32", "int64", "bool", "uint8")
] + [case(f(2, 3), Dtype("float32"), copy=False), case(f(2, 3), Dtype("complex64"))]
CASES["astype"] = [each for each in CASES["astype"] if not (each.args[1].name == "uint8" and each.args[0].min() < 0)]
CASES["can_cast"] = [
    case(Dtype(x), Dtype(y))
    for x, y in (("int8", "int32"), ("int32", "int8"), ("float32", "float64"), ("float64", "float32"), ("bool", "bool"))
] + [case(f(2), Dtype("float64"))]
CASES["isdtype"] = [
    case(Dtype(x), kind)
    for x in ("bool", "int8", "float64", "complex64")
    for kind in ("bool", "integral", "numeric", "real floating", ("bool", "signed integer"))
] + [case(Dtype("int32"), Dtype("int32"))]
CASES["result_type"] = [
    case(Dtype("int8"), Dtype("int32")),
    case(f(2), Dtype("float64")),
    case(i(2, dtype="int8"), 3),
    case(f(2), 1.5, 2),
    case(Dtype("uint8"), Dtype("int8")),
]
CASES["finfo"] = [case(Dtype("float32")), case(Dtype("float64")), case(f(2))]
CASES["iinfo"] = [case(Dtype("int8")), case(Dtype("int64")), case(Dtype("uint8"))]

CASES["arange"] = [
    case(5),
    case(1, 6, 2),
    case(0.0, 1.0, 0.25, dtype=Dtype("float32")),
    case(5, dtype=Dtype("float64")),
    case(3, 0, -1),
]
CASES["asarray"] = [
    case([[1.0, 2.0], [3.0, 4.0]], dtype=Dtype("float32")),
    case([1, 2]),
    case(True),
    case(f(2, 3)),
    case(f(2, 3), dtype=Dtype("float64"), copy=True),
]
CASES["empty"] = [case((2, 3)), case(2, dtype=Dtype("int32"))]
CASES["eye"] = [
    case(3, dtype=Dtype("float32")),
    case(2, 3, k=1, dtype=Dtype("int32")),
    case(3, 2, k=-1, dtype=Dtype("float64")),
]
CASES["full"] = [
    case((2, 3), 1.5, dtype=Dtype("float32")),
    case(2, 7),
    case((), True),
    case((2,), 3, dtype=Dtype("float64")),
]
CASES["linspace"] = [
    case(0, 1, 5, dtype=Dtype("float32")),
    case(0.0, 1.0, 4, endpoint=False, dtype=Dtype("float64")),
    case(2, 3, 1, dtype=Dtype("float32")),
]
CASES |= {
    name: [case((2, 3), dtype=Dtype("float32")), case(2, dtype=Dtype("int64")), case((), dtype=Dtype("bool"))]
    for name in ("zeros", "ones")
}
CASES |= {
    name: [case(f(2, 3)), case(i(2, 3)), case(f(2, 3), dtype=Dtype("int32"))]
    for name in ("empty_like", "ones_like", "zeros_like")
}
CASES["full_like"] = [case(f(2, 3), 2.5), case(i(2, 3), 7), case(f(2, 3), 1, dtype=Dtype("int32"))]
CASES["from_dlpack"] = [case(f(2, 3)), case(i(3))]

LINALG: dict[str, list[Case]] = {
    "cholesky": [case(positive()), case(positive("float64")), case(positive(), upper=True)],
    "cross": [case(f(2, 3), f(2, 3) + 1), case(f(3, 2), f(3, 2) * 2 + 1, axis=0) if False else case(f(3), f(3) + 1)],
    "det": [case(square()), case(square("float64"))],
    "diagonal": [case(f(3, 4)), case(f(2, 3, 3), offset=1), case(f(3, 4), offset=-1)],
    "eig": [case(square()), case(square("float64"))],
    "eigh": [case(positive()), case(positive("float64"))],
    "eigvals": [case(square()), case(square("float64"))],
    "eigvalsh": [case(positive()), case(positive("float64"))],
    "inv": [case(square()), case(square("float64"))],
    "matmul": CASES["matmul"],
    "matrix_norm": [case(f(2, 3, 4), ord=o) for o in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)]
    + [case(f(3, 4), keepdims=True)],
    "matrix_power": [case(square(), n) for n in (0, 1, 2, 3, -1)],
    "matrix_rank": [case(square()), case(np.ones((2, 3, 4), "float32")), case(f(3, 4), rtol=0.5)],
    "matrix_transpose": CASES["matrix_transpose"],
    "outer": [case(f(2), f(3)), case(i(2), i(3))],
    "pinv": [case(f(3, 4)), case(f(2, 4, 3, dtype="float64"), rtol=1e-8)],
    "qr": [case(f(4, 3)), case(f(2, 3, 3, dtype="float64")), case(f(4, 3), mode="complete")],
    "slogdet": [case(square()), case(square("float64"))],
    "solve": [case(square(), f(2, 3, 2)), case(square()[0], f(3)), case(square("float64"), f(3, 1, dtype="float64"))],
    "svd": [case(f(3, 4)), case(f(2, 4, 3, dtype="float64"), full_matrices=False), case(f(3, 4), full_matrices=False)],
    "svdvals": [case(f(3, 4)), case(f(2, 4, 3, dtype="float64"))],
    "tensordot": CASES["tensordot"],
    "trace": [case(f(3, 4)), case(f(2, 3, 3), offset=1), case(i(3, 3, dtype="int8"))],
    "vecdot": CASES["vecdot"],
    "vector_norm": [case(f(2, 3), axis=1, ord=o) for o in (0, 1, 2, 3, np.inf, -np.inf)]
    + [case(f(2, 3)), case(f(2, 3), keepdims=True), case(f(2, 3, 2), axis=(0, 1)), case(c(2, 3))],
}
_TIME, _WAVES = [f(2, 8), f(2, 6, dtype="float64")], [c(2, 5), c(2, 4, dtype="complex128")]
_NORMS = [{"norm": name} for name in ("ortho", "forward")]
FFT: dict[str, list[Case]] = {
    **{
        name: [
            *(case(x) for x in _WAVES),
            case(c(4, 3), axis=0),
            case(c(2, 5), n=8),
            case(c(2, 5), n=3),
            *(case(c(2, 5), **o) for o in _NORMS),
        ]
        for name in ("fft", "ifft")
    },
    **{
        name: [
            *(case(x) for x in _WAVES),
            case(c(4, 3, 2), axes=(0, 2)),
            case(c(4, 3), s=(2, 4), axes=(0, 1)),
            *(case(c(2, 5), **o) for o in _NORMS),
        ]
        for name in ("fftn", "ifftn")
    },
    **{
        name: [
            *(case(x) for x in _TIME),
            case(f(4, 3), axis=0),
            case(f(2, 8), n=6),
            *(case(f(2, 8), **o) for o in _NORMS),
        ]
        for name in ("rfft", "ihfft")
    },
    **{
        name: [
            *(case(x) for x in _WAVES),
            case(c(4, 3), axis=0),
            case(c(2, 5), n=7),
            *(case(c(2, 5), **o) for o in _NORMS),
        ]
        for name in ("irfft", "hfft")
    },
    "rfftn": [*(case(x) for x in _TIME), case(f(4, 3, 2), axes=(0, 1)), *(case(f(2, 8), **o) for o in _NORMS)],
    "irfftn": [*(case(x) for x in _WAVES), case(c(4, 3, 2), axes=(0, 1)), *(case(c(2, 5), **o) for o in _NORMS)],
    "fftfreq": [case(5, dtype=Dtype("float32")), case(8, d=0.5, dtype=Dtype("float64"))],
    "rfftfreq": [case(5, dtype=Dtype("float32")), case(8, d=0.5, dtype=Dtype("float64"))],
    **{name: [case(f(5)), case(f(4, 3)), case(f(4, 3), axes=(1,))] for name in ("fftshift", "ifftshift")},
}

ALL = {
    **CASES,
    **{f"linalg.{name}": found for name, found in LINALG.items()},
    **{f"fft.{name}": found for name, found in FFT.items()},
}
"""Function -> its calls."""
