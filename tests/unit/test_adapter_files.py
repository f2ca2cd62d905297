"""Tests of the names of the adapters' files: a name means the same in each adapter.

A file has a name from `NAMES`, or it is in a folder ``internals``, which contains code for only one framework. For
each name, an adapter has the file, or declares a gap in the file's feature, or has a reason here.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from devshim.contract.capabilities import FEATURES
from devshim.registry import discovery

ADAPTERS = Path(sys.modules["devshim_backends"].__path__[0])
ALONE = "internals"


class Name(NamedTuple):
    """A name that the adapters share.

    Attributes:
        contents: What a file of this name contains.
        feature: The feature that an adapter without the file declares as a gap; empty if no single feature needs the
            file.
        without: Adapter -> why it has no such file, although it supports the feature.
    """

    contents: str
    feature: str = ""
    without: Mapping[str, str] = {}


def because(**reasons: str) -> dict[str, str]:
    """Return adapter -> reason; a name such as ``jax_torch`` is a list of adapters."""
    return {name: reason for names, reason in reasons.items() for name in names.split("_")}


IN_KERAS = "the package _keras has it, for models of Keras on this framework"
IN_STANDARD = "the framework or array-api-compat has these functions under the standard's names"
NO_OPERATORS = "a function that every operator passes reports it: transfers/implicit.py"
WITHIN_ARRAY = "its simulated GPUs are one class of arrays: simulation/simulate.py"

NAMES = {
    "backend.py": Name("the class, composed of the mixins in the other files"),
    "capabilities.py": Name("the features that the framework lacks, with reasons"),
    "devices.py": Name("the devices, why there are no more, and their native names"),
    "tensors.py": Name("the device of a tensor, copies, conversion to and from NumPy"),
    "creation.py": Name("new tensors"),
    "random.py": Name("random tensors"),
    "scopes.py": Name("the framework's own default device, for a block"),
    "runtime.py": Name("synchronization, memory, settings that must precede the start"),
    "dlpack.py": Name("DLPack, and the optional fast paths"),
    "collectives.py": Name("tensors that are split over devices, joined and reduced"),
    "namespace.py": Name("the array-API namespace", "namespace"),
    "snippets.py": Name("the native line for each devshim call", "explain"),
    "gradients.py": Name("gradients of functions", "value_and_grad"),
    "ranks.py": Name("sums over processes", "ranks"),
    "native_code.py": Name(
        "templates of native code for a notebook",
        without=because(cupy="its users write arrays of two libraries", numpy="it has no GPUs"),
    ),
    "buffers.py": Name(
        "the memory behind a tensor: addresses, capsules, arrays over it",
        without=because(cupy_numpy_tensorflow_torch="the framework's own functions suffice: dlpack.py"),
    ),
    "containers.py": Name(
        "containers that the framework knows",
        without=because(cupy_mxnet_numpy_paddle="the framework has no registry of containers"),
    ),
    "extensions.py": Name("the extensions of the array API", without=because(cupy_jax_numpy_torch=IN_STANDARD)),
    "failures.py": Name(
        "errors that are both devshim's and the framework's",
        without=because(jax_mxnet_paddle="only simulated GPUs raise them: simulation/", numpy=WITHIN_ARRAY),
    ),
    "host_tensors.py": Name(
        "fast copies in host memory",
        without=because(cupy_mxnet_numpy_paddle_torch="the framework's own functions are as fast: tensors.py"),
    ),
    "import_hooks.py": Name(
        "help for an import of the framework",
        without=because(cupy_jax_numpy_tensorflow_torch="its import needs no help"),
    ),
    "real_gpus.py": Name(
        "the platforms of GPUs that builds of the framework have",
        without=because(cupy_mxnet_paddle_tensorflow="devices.py has its few platforms", numpy="it has no GPUs"),
    ),
    "tracing.py": Name(
        "devshim calls while the framework compiles",
        "trace_run",
        because(jax_paddle_tensorflow="errors need no care in a compiled function: scopes.py"),
    ),
    "transfers/implicit.py": Name("reports of reads by Python and NumPy", "guard"),
    "transfers/operators.py": Name(
        "reports of operators that copy", "guard", because(cupy_mxnet_numpy_paddle=NO_OPERATORS)
    ),
    "models/models.py": Name("models and their leaves", "models"),
    "models/optimizers.py": Name("optimizers and their leaves", "models", because(jax_tensorflow=IN_KERAS)),
    "models/traversal.py": Name(
        "key paths of leaves", "models", because(jax=IN_KERAS, paddle="models.py: layers list their own leaves")
    ),
    "models/blocks.py": Name("the structure of a model", "models", because(jax=IN_KERAS)),
    "models/layer_specs.py": Name(
        "layers in terms that other frameworks share",
        "models",
        because(jax_tensorflow=IN_KERAS, paddle_torch="models/blocks.py: their weights have the common layouts"),
    ),
    "models/cloning.py": Name(
        "independent copies", "models", because(jax=IN_KERAS, torch="copy.deepcopy suffices: models/models.py")
    ),
    "models/extra_state.py": Name("what a checkpoint stores besides tensors", "models", because(jax=IN_KERAS)),
    "models/storage_swap.py": Name(
        "other memory for a parameter that stays the same object",
        "models",
        because(jax="an array is immutable, and a model's variable takes another array"),
    ),
    "models/dispatch.py": Name(
        "a model computes where its weights are",
        "models",
        because(jax="operators follow their arguments: models/keras/calls.py has the rest"),
    ),
    "models/split_forward.py": Name(
        "the same for a model over several devices",
        "models",
        because(jax="a model of JAX is on one device, or sharded by JAX itself"),
    ),
    "models/align_devices.py": Name(
        "operands on several devices in a split model",
        "models",
        because(jax="see models/split_forward.py", paddle="hooks of layers copy all inputs: models/split_forward.py"),
    ),
    "models/optimizer_step.py": Name(
        "a step that computes where its parameters are",
        "models",
        because(jax_tensorflow_torch="optimizers follow their parameters, or models/split_forward.py has hooks"),
    ),
    "models/patching.py": Name(
        "wrappers around methods of classes, where there are no hooks",
        "models",
        because(jax=IN_KERAS, mxnet_paddle_torch="blocks, layers and modules have hooks"),
    ),
    "models/keras/calls.py": Name(
        "models of Keras, where the framework is its backend; the other names in the folder are those of models/",
        "models",
        because(tensorflow="models/ is for Keras", mxnet_paddle="Keras has no such backend"),
    ),
    "simulation/simulate.py": Name("switching simulated GPUs on and off"),
    "simulation/hooks.py": Name("operators on their way to a simulated GPU", "simulate", because(numpy=WITHIN_ARRAY)),
    "simulation/device_rules.py": Name(
        "which devices an operator may mix",
        "simulate",
        because(numpy=WITHIN_ARRAY, jax="JAX itself refuses to mix its CPU devices"),
    ),
    "simulation/memory.py": Name("the memory of each GPU", "simulate_memory", because(numpy=WITHIN_ARRAY)),
    "simulation/storage.py": Name(
        "the blocks of memory that tensors use",
        "simulate_memory",
        because(numpy=WITHIN_ARRAY, paddle="the plug-in counts them: simulation/memory.py"),
    ),
    "simulation/tensors.py": Name(
        "methods of tensors that need care",
        "simulate",
        because(numpy=WITHIN_ARRAY, jax_mxnet_tensorflow="tensors of a CPU device have all methods"),
    ),
    "simulation/dtypes.py": Name(
        "dtypes that the processor lacks",
        "simulate",
        because(jax_mxnet_numpy_tensorflow="simulated GPUs compute in the dtypes of the CPU"),
    ),
    "simulation/workarounds.py": Name(
        "workarounds for faults of the framework",
        "simulate",
        because(jax_mxnet_numpy_torch="each is in the file of the code that needs it"),
    ),
    "simulation/removed_gpus.py": Name(
        "refusing tensors on GPUs that were removed",
        "simulate",
        because(
            numpy=WITHIN_ARRAY,
            jax="simulation/hooks.py",
            mxnet="simulation/memory.py",
            torch="simulation/internals/state.py",
        ),
    ),
    "simulation/native_names/switch.py": Name("switching the framework's own names on and off", "native_names"),
    "simulation/native_names/names.py": Name(
        "the translation of the names", "native_names", because(jax="devices report other names: devices.py")
    ),
    "simulation/native_names/devices.py": Name(
        "what devices report",
        "native_names",
        because(mxnet_paddle_torch="devices are values that names.py translates"),
    ),
    "simulation/native_names/runtime.py": Name(
        "what the runtime reports: counts, properties, memory",
        "native_names",
        because(mxnet="its C functions: switch.py", tensorflow="tf.config: devices.py"),
    ),
    "simulation/native_names/tensors.py": Name(
        "what tensors report",
        "native_names",
        because(mxnet="at the C interface: switch.py", tensorflow="internals/scopes.py, with all that has a name"),
    ),
    "simulation/native_names/operators.py": Name(
        "operators that choose a device themselves",
        "native_names",
        because(jax_mxnet_paddle="the names are translated before an operator sees them"),
    ),
    "simulation/native_names/libraries.py": Name(
        "NVIDIA's libraries",
        "native_names",
        because(jax_paddle="programs do not choose between them", mxnet="the features of its build: switch.py"),
    ),
    "simulation/native_names/distributed.py": Name(
        "NCCL", "native_names", because(jax_mxnet="its sums over GPUs work on simulated GPUs, without NCCL")
    ),
    "simulation/native_names/autocast.py": Name(
        "mixed precision",
        "native_names",
        because(jax_mxnet_tensorflow="its rules for mixed precision name no device"),
    ),
    "simulation/native_names/saved_devices.py": Name(
        "devices in saved files",
        "native_names",
        because(jax_paddle="files of tensors name no device", tensorflow="graphs name devices: internals/scopes.py"),
    ),
    "simulation/native_names/refused.py": Name(
        "calls that cannot be simulated",
        "native_names",
        because(jax_mxnet_paddle="the module that replaces a function refuses its calls"),
    ),
}
KERAS = {f"models/keras/{name.rpartition('/')[2]}": name for name in NAMES if re.fullmatch(r"models/\w+\.py", name)}
"""A file for models of Keras -> the name in ``models/`` of the same purpose."""


def files_of(adapter: Path, *, alone: bool) -> set[str]:
    """Return an adapter's files that are in a folder only for itself, or all others, relative to it."""
    paths = (path.relative_to(adapter) for path in adapter.rglob("*.py"))
    return {path.as_posix() for path in paths if (ALONE in path.parts) is alone and path.name != "__init__.py"}


def wrongly_apart(adapters: Iterable[set[str]]) -> list[str]:
    """Return the files for one framework that two adapters have, or that have a shared name for their place."""
    counts = Counter(file for files in adapters for file in files)
    return sorted(file for file, count in counts.items() if count > 1 or file.replace(f"{ALONE}/", "") in NAMES)


def without_a_name(found: Iterable[str]) -> list[str]:
    """Return the files that have no name from the table."""
    return sorted({*found} - NAMES.keys() - KERAS.keys())


def without_reason(name: str, found: Iterable[str], gaps: Iterable[str]) -> list[str]:
    """Return the names for which an adapter has no file, no gap and no reason, or more than one of these."""
    found, gaps = {*found}, {*gaps}
    return [
        file
        for file, about in NAMES.items()
        if (file in found) + (about.feature in gaps) + (name in about.without) != 1
    ]


def gaps_of(name: str) -> set[str]:
    return {*import_module(f"devshim_backends._{name}.capabilities").GAPS}


@pytest.mark.parametrize("name", discovery.BUILTIN)
def test_a_file_has_a_shared_name_or_is_for_its_framework_alone(name: str) -> None:
    assert without_a_name(files_of(ADAPTERS / f"_{name}", alone=False)) == []


@pytest.mark.parametrize("name", discovery.BUILTIN)
def test_a_missing_file_is_a_missing_feature_or_has_a_reason(name: str) -> None:
    assert without_reason(name, files_of(ADAPTERS / f"_{name}", alone=False), gaps_of(name)) == []


def test_a_name_is_shared() -> None:
    homes = [files_of(ADAPTERS / f"_{name}", alone=False) for name in discovery.BUILTIN]
    homes.append({f"models/{path.name}" for path in (ADAPTERS / "_keras").glob("*.py")})
    homes.append({KERAS[file] for each in homes for file in each & KERAS.keys()})
    assert [name for name in NAMES if sum(name in each for each in homes) < 2] == []


def test_the_table_names_features_and_adapters_that_exist() -> None:
    assert {about.feature for about in NAMES.values()} <= {"", *FEATURES}
    assert {name for about in NAMES.values() for name in about.without} <= discovery.BUILTIN.keys()


@pytest.mark.parametrize("folder", sorted(ADAPTERS.glob(f"_*/**/{ALONE}")), ids=lambda path: path.parts[-3])
def test_a_folder_for_one_framework_says_so(folder: Path) -> None:
    assert "no other adapter" in (folder / "__init__.py").read_text(encoding="utf-8")


def test_a_file_for_one_framework_alone_is_in_one_adapter() -> None:
    files = [files_of(ADAPTERS / f"_{name}", alone=True) for name in discovery.BUILTIN]
    assert all(files[list(discovery.BUILTIN).index(name)] for name in ("torch", "tensorflow", "jax", "paddle", "mxnet"))
    assert wrongly_apart(files) == []


def test_a_file_that_two_adapters_have_apart_is_found() -> None:
    assert wrongly_apart([{"internals/clients.py"}, {"internals/clients.py", "internals/axes.py"}]) == [
        "internals/clients.py"
    ]
    assert wrongly_apart([{"simulation/internals/memory.py"}]) == ["simulation/internals/memory.py"]


def test_the_page_for_new_backends_lists_the_names() -> None:
    page = (Path(__file__).parents[2] / "backends/README.md").read_text(encoding="utf-8")
    listed = set()
    for folder, table in re.findall(r"\| file(?: in `([\w/]+)`)? \| contents \|\n(.*?)\n *\n", page, re.DOTALL):
        for cell in re.findall(r"^ *\| ([^|]+) \|", table, re.MULTILINE):
            listed |= {folder + name for name in re.findall(r"`([\w/]+\.py)`", cell)}
    assert listed == NAMES.keys()


def test_a_file_without_a_shared_name_is_found() -> None:
    assert without_a_name(["tensors.py", "host_arrays.py", "models/keras/models.py"]) == ["host_arrays.py"]


def test_a_missing_file_is_found() -> None:
    assert "tensors.py" in without_reason("jax", NAMES.keys() - {"tensors.py"}, [])
    assert "ranks.py" in without_reason("jax", NAMES.keys() - {"ranks.py"}, [])
    assert "ranks.py" not in without_reason("jax", NAMES.keys() - {"ranks.py"}, ["ranks"])
    assert "ranks.py" in without_reason("jax", NAMES.keys(), ["ranks"])
    assert "tracing.py" in without_reason("jax", NAMES.keys(), [])
