"""The names of the adapters' files: what each contains, and why an adapter has no file of that name.

`tests/unit/test_adapter_files.py` compares the table with the files. A reason that names files and code is checked
there too; `tests/multi_framework/test_adapter_reasons.py` checks those that are about a framework.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

ADAPTERS = Path(import_module("devshim_backends").__path__[0])
ALONE = "internals"
"""The name of folders with code for only one framework."""


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


NO_REGISTRY = "the framework has no registry of containers"
NO_KERAS = "Keras has no such backend"
NO_OPERATORS = "its operators copy no operand, or transfers/implicit.py patches the function that copies"
WITHIN_ARRAY = "its simulated GPUs are one class of arrays: `SimulatedArray` in simulation/simulate.py"


def in_keras(file: str) -> str:
    """Return the reason of an adapter whose models are those of Keras."""
    return f"models of Keras are handled in _keras/{file}"


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
        without=because(
            cupy="its programs use arrays of CuPy and NumPy side by side", numpy="it has no GPUs: `kinds` in devices.py"
        ),
    ),
    "buffers.py": Name(
        "the memory behind a tensor: addresses, capsules, arrays over it",
        without=because(cupy_numpy_tensorflow_torch="the framework's own `from_dlpack` suffices: dlpack.py"),
    ),
    "containers.py": Name(
        "containers that the framework knows",
        without=because(cupy_mxnet_numpy_paddle=NO_REGISTRY),
    ),
    "extensions.py": Name(
        "the extensions of the array API",
        without=because(
            cupy_numpy_torch="array-api-compat has them under the standard's names: `compat_namespace` in namespace.py",
            jax="`jax.numpy` has them under the standard's names: namespace.py",
        ),
    ),
    "failures.py": Name(
        "errors that are both devshim's and the framework's",
        without=because(
            jax_mxnet="only simulated GPUs raise `FullDeviceError`: simulation/simulate.py",
            paddle="only simulated GPUs raise `FullDeviceError`: simulation/memory.py",
            numpy=WITHIN_ARRAY,
        ),
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
        without=because(
            cupy_mxnet_paddle_tensorflow="the few platforms of its builds are in devices.py",
            numpy="it has no GPUs: `kinds` in devices.py",
        ),
    ),
    "tracing.py": Name(
        "devshim calls while the framework compiles",
        "trace_run",
        because(jax_paddle_tensorflow="a compiled function passes on what devshim raises: scopes.py"),
    ),
    "transfers/implicit.py": Name("reports of reads by Python and NumPy", "guard"),
    "transfers/operators.py": Name(
        "reports of operators that copy", "guard", because(cupy_mxnet_numpy_paddle=NO_OPERATORS)
    ),
    "models/models.py": Name("models and their leaves", "models"),
    "models/optimizers.py": Name(
        "optimizers and their leaves", "models", because(jax_tensorflow=in_keras("optimizers.py"))
    ),
    "models/traversal.py": Name(
        "key paths of leaves",
        "models",
        because(jax=in_keras("traversal.py"), paddle="its layers list their leaves: `_iter_layer` in models/models.py"),
    ),
    "models/blocks.py": Name("the structure of a model", "models", because(jax=in_keras("blocks.py"))),
    "models/layer_specs.py": Name(
        "layers in terms that other frameworks share",
        "models",
        because(
            jax_tensorflow=in_keras("layer_specs.py"),
            paddle_torch="its weights have the common layouts: `Layer` and `Weight` in models/blocks.py",
        ),
    ),
    "models/cloning.py": Name(
        "independent copies",
        "models",
        because(jax=in_keras("cloning.py"), torch="`deepcopy` suffices: models/models.py"),
    ),
    "models/extra_state.py": Name(
        "what a checkpoint stores besides tensors", "models", because(jax=in_keras("extra_state.py"))
    ),
    "models/storage_swap.py": Name(
        "other memory for a parameter that stays the same object",
        "models",
        because(jax="a variable takes another array, which is immutable: `_direct_assign` in models/keras/calls.py"),
    ),
    "models/dispatch.py": Name(
        "a model computes where its weights are",
        "models",
        because(jax="its operators follow their arguments: models/keras/calls.py does what is left"),
    ),
    "models/split_forward.py": Name(
        "the same for a model over several devices",
        "models",
        because(jax="a model of JAX is on one device, or sharded by JAX itself"),
    ),
    "models/align_devices.py": Name(
        "operands on several devices in a split model",
        "models",
        because(
            jax="a model of JAX is on one device, or sharded by JAX itself",
            paddle="the hooks of layers copy all inputs: models/split_forward.py",
        ),
    ),
    "models/optimizer_step.py": Name(
        "a step that computes where its parameters are",
        "models",
        because(
            jax="Keras updates variables, which stay on their devices: `_direct_assign` in models/keras/calls.py",
            tensorflow="`OptimizerHook` in models/split_forward.py",
            torch="its optimizers compute where each parameter is",
        ),
    ),
    "models/patching.py": Name(
        "wrappers around methods of classes, where there are no hooks",
        "models",
        because(
            jax=in_keras("patching.py"),
            mxnet="its layers have hooks, or `hybridize`: models/split_forward.py",
            paddle_torch="its layers have hooks: `register_forward_pre_hook` in models/",
        ),
    ),
    "models/keras/calls.py": Name(
        "models of Keras, where the framework is its backend; the other names in the folder are those of models/",
        "models",
        because(tensorflow="models/models.py is for models of Keras", mxnet_paddle=NO_KERAS),
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
        because(numpy=WITHIN_ARRAY, paddle="the plug-in counts them, in C++: simulation/internals/simulated_gpus.cc"),
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
        "the translation of the names",
        "native_names",
        because(jax="its devices report other names: simulation/native_names/devices.py"),
    ),
    "simulation/native_names/devices.py": Name(
        "what devices report",
        "native_names",
        because(mxnet_paddle_torch="its devices are values that simulation/native_names/names.py translates"),
    ),
    "simulation/native_names/runtime.py": Name(
        "what the runtime reports: counts, properties, memory",
        "native_names",
        because(
            mxnet="its C functions are replaced in simulation/native_names/switch.py",
            tensorflow="its lists and configuration are in simulation/native_names/devices.py: `_wrap_configuration`",
        ),
    ),
    "simulation/native_names/tensors.py": Name(
        "what tensors report",
        "native_names",
        because(
            mxnet="its C interface is translated in simulation/native_names/switch.py",
            tensorflow="tensors and operations are in simulation/native_names/internals/scopes.py: `backing_device`",
        ),
    ),
    "simulation/native_names/operators.py": Name(
        "operators that choose a device themselves",
        "native_names",
        because(
            jax="JAX itself chooses from the devices in simulation/native_names/devices.py",
            mxnet_paddle="names are translated before an operator gets them: simulation/native_names/names.py",
        ),
    ),
    "simulation/native_names/libraries.py": Name(
        "NVIDIA's libraries",
        "native_names",
        because(
            jax="programs do not choose between them",
            mxnet="the features of its build are in simulation/native_names/switch.py: `_show_feature`",
        ),
    ),
    "simulation/native_names/distributed.py": Name(
        "NCCL",
        "native_names",
        because(
            jax="XLA computes its sums on the devices of its CPU client, without NCCL",
            mxnet="its sums over GPUs compute on the CPU, without NCCL",
        ),
    ),
    "simulation/native_names/autocast.py": Name(
        "mixed precision",
        "native_names",
        because(jax_mxnet_tensorflow="a program names no device when it asks for mixed precision"),
    ),
    "simulation/native_names/saved_devices.py": Name(
        "devices in saved files",
        "native_names",
        because(
            jax_paddle="its files of tensors name no device",
            tensorflow="graphs are translated when they are imported: simulation/native_names/internals/scopes.py",
        ),
    ),
    "simulation/native_names/refused.py": Name(
        "calls that cannot be simulated",
        "native_names",
        because(
            jax="`UnsupportedError` is raised in simulation/native_names/switch.py",
            mxnet="it refuses GPUs that are not there, and no other call: simulation/native_names/names.py",
            paddle="`UnsupportedError` is raised in simulation/native_names/distributed.py, among others",
        ),
    ),
}
KERAS = {f"models/keras/{name.rpartition('/')[2]}": name for name in NAMES if re.fullmatch(r"models/\w+\.py", name)}
"""A file for models of Keras -> the name in ``models/`` of the same purpose."""
