"""A pytest plugin for the tests of other projects: it runs tests on every backend, and on simulated GPUs.

pytest loads this module wherever devshim is installed, so it only defines two fixtures, and imports nothing until
one of them is used. A test that takes ``devshim_backend`` runs once for each backend, each in its own process
(`devshim.testing.isolation`); a test that takes ``simulated_gpus`` gets GPUs on a machine that has none::

    def test_both_cards(devshim_backend, simulated_gpus):
        first, second = simulated_gpus
        x = ds.ones(3, device=first)
        assert ds.device_of(ds.place(x, second)) == second
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from devshim import use
from devshim.devices.device import Device
from devshim.errors import BackendNotFoundError
from devshim.registry import current, discovery, simulation_request
from devshim.simulation.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Literal

    from devshim.simulation.memory import Fault
    from devshim.simulation.simulate import Simulation
    from devshim.world.simulated_hosts import SimulatedHosts

__all__ = ["SimulatedGpus", "devshim_backend", "devshim_cluster", "simulated_gpus"]

_BACKEND, _GPUS, _CHILD = "devshim_backend", "simulated_gpus", "devshim-child"
_INSTALLED = "installed"


class SimulatedGpus(list[Device]):
    """The simulated GPUs of a test, as a list of devices; a call with other numbers changes them."""

    def __init__(self, native_names: bool = False) -> None:
        super().__init__()
        self._first: Simulation | None = None
        self._native_names = native_names

    def __call__(
        self,
        gpus: int = 2,
        memory: str | int | None = None,
        faults: Fault | Sequence[Fault] = (),
        like: Literal["cuda", "mps", "xpu"] = "cuda",
        native_names: bool | None = None,
        async_copies: Literal["immediate", "late"] = "immediate",
    ) -> SimulatedGpus:
        """Simulate another number of GPUs, with the arguments of `devshim.simulate`; return this list."""
        names = self._native_names if native_names is None else native_names
        handle = simulate(gpus, memory, faults=faults, like=like, native_names=names, async_copies=async_copies)
        self._first = self._first or handle
        self[:] = [Device("gpu", i) for i in range(simulation_request.simulated_gpus())]
        return self

    def restore(self) -> None:
        """Restore the simulation from before the test."""
        if self._first is not None:
            self._first.__exit__()

    def __repr__(self) -> str:
        return f"<{len(self)} simulated GPUs: {', '.join(map(str, self))}>"


# ---------------------------------------------------------------------- fixtures
@pytest.fixture(scope="session")
def devshim_backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the name of the test's backend, which is the current one: each of --devshim-backends in turn."""
    before = current._process
    try:
        use(request.param)
    except BackendNotFoundError as error:
        pytest.fail(f"The backend was requested, but cannot be tested.\n{error}", pytrace=False)
    yield discovery.canonical_name(request.param)
    use(before)


@pytest.fixture
def simulated_gpus(request: pytest.FixtureRequest) -> Iterator[SimulatedGpus]:
    """Simulate GPUs for a test: two, or as many as ``simulated_gpus(3, memory="1GiB")`` or the mark asks for."""
    gpus = SimulatedGpus(request.config.getoption("devshim_native_names"))
    arguments, options = _simulate_arguments(request.node, getattr(request, "param", None))
    try:
        yield gpus(*arguments, **options)
    finally:
        gpus.restore()


@pytest.fixture
def devshim_cluster() -> Iterator[Callable[..., SimulatedHosts]]:
    """Yield a function that starts simulated hosts with simulated GPUs, on which `devshim.launch` then runs.

    ``devshim_cluster(hosts=2, cards=2)`` starts two Ray nodes on this machine, which take a few seconds. They listen on
    only the loopback address, and end with the test. The result has their ``names``, ``lose(name)`` ends one,
    and ``add()`` starts another.
    """
    from devshim.world.simulated_hosts import SimulatedHosts

    started: list[SimulatedHosts] = []

    def start(hosts: int = 2, cards: int = 2) -> SimulatedHosts:
        started.append(SimulatedHosts(hosts, cards))
        return started[-1]

    try:
        yield start
    finally:
        for cluster in reversed(started):
            cluster.close()


def _simulate_arguments(item: pytest.Item, param: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments for `simulate`, from indirect parametrization or the mark; none without both."""
    if param is not None:
        return ((), dict(param)) if isinstance(param, dict) else ((param,), {})
    mark = item.get_closest_marker(_GPUS)
    return ((), {}) if mark is None else (mark.args, dict(mark.kwargs))


# ---------------------------------------------------------------------- options
def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command-line options of this plugin, and the ini option ``devshim_backends``."""
    group = parser.getgroup("devshim", "devshim")
    group.addoption(
        "--devshim-backends",
        type=_split,
        metavar="NAMES",
        help=f"run tests that use the fixture {_BACKEND} on these (torch,jax,...); '{_INSTALLED}' for all",
    )
    group.addoption(
        "--devshim-in-process",
        action="store_true",
        help="run these tests in pytest's own process, for a debugger; only one backend at a time",
    )
    group.addoption(
        "--devshim-native-names",
        action="store_true",
        help=f"let native names, such as cuda:1, mean the GPUs of the fixture {_GPUS}",
    )
    parser.addini(
        "devshim_backends", "the value of --devshim-backends if that option is not given", type="args", default=[]
    )


def _split(names: str) -> list[str]:
    return [name for name in names.replace(",", " ").split() if name]


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and refuse unknown names of backends."""
    config.addinivalue_line(
        "markers",
        f"{_GPUS}(gpus=2, memory=None, faults=(), like='cuda', native_names=False, ...): "
        "run the test with simulated GPUs (devshim)",
    )
    try:
        for name in _named_backends(config):
            discovery.canonical_name(name)
    except BackendNotFoundError as error:
        msg = f"devshim: {error.problem}; {error.hint}"
        raise pytest.UsageError(msg) from error


def pytest_report_header(config: pytest.Config) -> str | None:
    """Return a header line with the requested backends."""
    named = _named_backends(config)
    return f"devshim backends: {', '.join(named)}" if named else None


def _named_backends(config: pytest.Config) -> list[str]:
    """Return the backends requested by name, on the command line or in the ini file."""
    option = config.getoption("devshim_backends")
    requested = (
        option if option is not None else [name for word in config.getini("devshim_backends") for name in _split(word)]
    )
    return [] if requested == [_INSTALLED] else requested


# ---------------------------------------------------------------------- parametrization and processes
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test with its backends, unless indirect parametrization names them."""
    if _BACKEND not in metafunc.fixturenames or _is_parametrized(metafunc):
        return
    requested = _named_backends(metafunc.config)
    names = list(dict.fromkeys(map(discovery.canonical_name, requested))) if requested else discovery.installed_names()
    if not requested and (_GPUS in metafunc.fixturenames or metafunc.definition.get_closest_marker(_GPUS) is not None):
        names = [name for name in names if not _cannot_simulate(name)]
    metafunc.parametrize(_BACKEND, names, indirect=True, scope="session")


def _cannot_simulate(name: str) -> bool:
    """Return True if a built-in backend declares that it has no simulated GPUs, as CuPy does."""
    from devshim.registry import registry

    return name in discovery.BUILTIN and "simulate" in registry.gaps(name)


def _is_parametrized(metafunc: pytest.Metafunc) -> bool:
    marks = metafunc.definition.iter_markers("parametrize")
    names = [mark.args[0] if mark.args else mark.kwargs.get("argnames", ()) for mark in marks]
    return any(_BACKEND in (_split(each) if isinstance(each, str) else each) for each in names)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give marked tests the mark's fixture, and give the tests of a backend their own process."""
    for item in items:
        names = getattr(item, "fixturenames", None)
        if names is not None and _GPUS not in names and item.get_closest_marker(_GPUS) is not None:
            names.append(_GPUS)
    if config.pluginmanager.has_plugin(_CHILD) or config.getoption("devshim_in_process"):
        return
    chosen = [item for item in items if isinstance(item, pytest.Function) and _backend_of(item) is not None]
    if chosen and not config.option.collectonly:
        _isolate(session, chosen)


def _backend_of(item: pytest.Function) -> str | None:
    """Return the backend for which a test needs a process; None if it needs none, or cannot have one."""
    name = item.callspec.params.get(_BACKEND) if hasattr(item, "callspec") else None
    if not isinstance(name, str):
        return None
    try:
        name = discovery.canonical_name(name)
    except BackendNotFoundError:  # the fixture reports this
        return None
    return name if discovery.is_installed(name) else None


def _isolate(session: pytest.Session, items: list[pytest.Function]) -> None:
    from devshim.testing.isolation.plugin import GPUS, GROUP, Isolation
    from devshim.testing.isolation.process import IsolationGroup

    for item in items:
        name = _backend_of(item)
        assert name is not None
        simulated = _GPUS in item.fixturenames
        item.stash[GROUP] = (IsolationGroup(name, simulated), item.nodeid)
        if simulated:
            arguments, options = _simulate_arguments(item, item.callspec.params.get(_GPUS))
            requested = options.get("gpus", arguments[0] if arguments else 0)
            item.stash[GPUS] = requested if isinstance(requested, int) else 0
    session.config.pluginmanager.register(Isolation(session), "devshim-isolation")
