"""`Conformance`: all test classes of the kit in one class."""

from __future__ import annotations

from devshim.testing.behaviours.capabilities import CapabilityTests
from devshim.testing.behaviours.checkpoint_ranks import RankCheckpointTests
from devshim.testing.behaviours.checkpoints import CheckpointTests
from devshim.testing.behaviours.collectives import CollectiveTests
from devshim.testing.behaviours.compiled import CompiledTests
from devshim.testing.behaviours.compiled_api import CompiledApiTests
from devshim.testing.behaviours.compiled_like import CompiledLikeTests
from devshim.testing.behaviours.convert import ConvertTests
from devshim.testing.behaviours.copy import CopyTests
from devshim.testing.behaviours.creation import CreationTests
from devshim.testing.behaviours.creation_arguments import CreationArgumentTests
from devshim.testing.behaviours.creation_like import LikeTests
from devshim.testing.behaviours.data_parallel import DataParallelTests
from devshim.testing.behaviours.data_parallel_models import DataParallelModelTests
from devshim.testing.behaviours.default_dtypes import DefaultDtypeTests
from devshim.testing.behaviours.devices import DeviceTests
from devshim.testing.behaviours.dtypes import DtypeTests
from devshim.testing.behaviours.ended_gradients import EndedGradientTests
from devshim.testing.behaviours.errors import ErrorTests
from devshim.testing.behaviours.explain import ExplainTests
from devshim.testing.behaviours.fast_paths import FastPathTests
from devshim.testing.behaviours.generators import GeneratorTests
from devshim.testing.behaviours.global_state import GlobalStateTests
from devshim.testing.behaviours.gradient_refusals import GradientRefusalTests
from devshim.testing.behaviours.gradients import GradientTests
from devshim.testing.behaviours.guard import GuardTests
from devshim.testing.behaviours.interrupts import InterruptTests
from devshim.testing.behaviours.leaf_values import LeafValueTests
from devshim.testing.behaviours.ledger import LedgerTests
from devshim.testing.behaviours.missing_devices import MissingDeviceTests
from devshim.testing.behaviours.mixed_devices import MixedDeviceTests
from devshim.testing.behaviours.model_gradients import ModelGradientTests
from devshim.testing.behaviours.models import ModelTests
from devshim.testing.behaviours.namespace_axes import NamespaceAxesTests
from devshim.testing.behaviours.namespace_creation import NamespaceCreationTests
from devshim.testing.behaviours.namespace_dtypes import NamespaceDtypesTests
from devshim.testing.behaviours.namespace_matrices import NamespaceMatricesTests
from devshim.testing.behaviours.namespace_shapes import NamespaceShapesTests
from devshim.testing.behaviours.namespace_values import NamespaceValuesTests
from devshim.testing.behaviours.namespace_wrapping import NamespaceWrappingTests
from devshim.testing.behaviours.namespaces import NamespaceTests
from devshim.testing.behaviours.native_names import NativeNameTests
from devshim.testing.behaviours.neutral_programs import NeutralProgramTests
from devshim.testing.behaviours.numpy_arrays import NumpyArrayTests
from devshim.testing.behaviours.numpy_lists import NumpyListTests
from devshim.testing.behaviours.observers_in_threads import ThreadedObserverTests
from devshim.testing.behaviours.place import PlaceTests
from devshim.testing.behaviours.platforms import PlatformTests
from devshim.testing.behaviours.portable_draws import PortableDrawTests
from devshim.testing.behaviours.prefetching import PrefetchTests
from devshim.testing.behaviours.random import RandomTests
from devshim.testing.behaviours.ranks import RankTests
from devshim.testing.behaviours.refused_allocations import RefusedAllocationTests
from devshim.testing.behaviours.removed_gpus import RemovedGpuTests
from devshim.testing.behaviours.runtime import RuntimeTests
from devshim.testing.behaviours.scopes import ScopeTests
from devshim.testing.behaviours.simulated_gpus import SimulatedGpuTests
from devshim.testing.behaviours.simulation import SimulationTests
from devshim.testing.behaviours.stop_gradient import StopGradientTests
from devshim.testing.behaviours.threads import ThreadTests
from devshim.testing.behaviours.three_gpus import ThreeGpuTests
from devshim.testing.behaviours.timing import TimerTests
from devshim.testing.behaviours.training import TrainingTests
from devshim.testing.behaviours.trees import TreeTests
from devshim.testing.behaviours.value_and_grad import ValueAndGradTests
from devshim.testing.behaviours.wide_integers import WideIntegerTests
from devshim.testing.behaviours.widths import WidthTests

__all__ = ["Conformance"]


class Conformance(
    DeviceTests,
    MissingDeviceTests,
    PlatformTests,
    NativeNameTests,
    PlaceTests,
    CopyTests,
    CreationTests,
    CreationArgumentTests,
    WideIntegerTests,
    DefaultDtypeTests,
    LikeTests,
    FastPathTests,
    RandomTests,
    GeneratorTests,
    PortableDrawTests,
    NumpyArrayTests,
    NumpyListTests,
    DtypeTests,
    WidthTests,
    GradientTests,
    ValueAndGradTests,
    GradientRefusalTests,
    EndedGradientTests,
    StopGradientTests,
    ScopeTests,
    ThreadTests,
    MixedDeviceTests,
    TreeTests,
    ConvertTests,
    CompiledTests,
    CompiledApiTests,
    CompiledLikeTests,
    RuntimeTests,
    PrefetchTests,
    TimerTests,
    ExplainTests,
    ErrorTests,
    GlobalStateTests,
    CapabilityTests,
    SimulationTests,
    SimulatedGpuTests,
    InterruptTests,
    ThreadedObserverTests,
    RefusedAllocationTests,
    RemovedGpuTests,
    ModelTests,
    ModelGradientTests,
    TrainingTests,
    CollectiveTests,
    DataParallelTests,
    DataParallelModelTests,
    LeafValueTests,
    LedgerTests,
    GuardTests,
    CheckpointTests,
    RankCheckpointTests,
    RankTests,
    ThreeGpuTests,
    NamespaceTests,
    NamespaceCreationTests,
    NamespaceShapesTests,
    NamespaceValuesTests,
    NamespaceWrappingTests,
    NamespaceMatricesTests,
    NamespaceAxesTests,
    NamespaceDtypesTests,
    NeutralProgramTests,
):
    """All promises of the contract: set `backend`, write the hooks that your framework needs, and run pytest."""

    __test__ = False

    def __init_subclass__(cls) -> None:
        cls.__test__ = True
        for name in ("backend",):
            if not isinstance(getattr(cls, name, None), str):
                msg = f"{cls.__name__} must set {name!r} to its framework's import name"
                raise TypeError(msg)
