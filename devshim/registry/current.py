"""The current framework and the default device, for the process, for a context, or from the environment.

A context is one in the sense of `contextvars`: each thread and each asyncio task has its own choice.
"""

from __future__ import annotations

import sys
from _thread import _local, allocate_lock
from contextvars import ContextVar
from os import environ

from devshim._compiler_marks import constant_under_compile
from devshim.devices import parsing
from devshim.devices.device import CPU, Device
from devshim.errors import BackendNotFoundError, DeviceNotFoundError, DeviceSpecError
from devshim.registry import default_devices, discovery, environment, registry, tracing

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import ModuleType

    from devshim.contract.backend import Backend
    from devshim.devices.info import BackendInfo
    from devshim.registry.discovery import BackendName


class _Traced(_local):
    """The devices and framework scopes of the blocks that this thread traces, innermost last; empty outside tracing."""

    def __init__(self) -> None:
        self.devices: list[Device] = []
        self.scopes: list[AbstractContextManager[object]] = []


TRACED = _Traced()
traced_scopes: bool = False
"""True once a compiler has traced a block with a device: until then, `TRACED` is empty in every thread."""


@constant_under_compile
def note_traced_scope() -> None:
    """Remember that `TRACED` must be asked from now on; a compiler calls this while it traces."""
    global traced_scopes, usual_backend
    with _LOCK:
        traced_scopes, usual_backend = True, None


_process: str | None = None
usual_backend: Backend | None = None
"""The loaded backend that `use` chose; None before it is loaded, and once `TRACED` must be asked (see `on_host`)."""
_LOCK = allocate_lock()  # to change the two together
CHOSEN: ContextVar[tuple[str, ...]] = ContextVar("devshim_backend", default=())
"""The backends of the open `using` blocks of this thread or task, innermost last."""


def use(backend: BackendName | None) -> None:
    """Make a framework the current one for the whole process.

    Args:
        backend: ``"torch"``, ``"tensorflow"``, ``"mxnet"``, ``"paddle"``, ``"jax"``, ``"cupy"``, ``"numpy"``, a
            nickname (``"tf"``, ``"mx"``, ...) or the name of a third-party backend; None resets the choice.

    Raises:
        BackendNotFoundError: The backend does not exist, or its framework is not installed.

    The framework is not imported yet; the first call that needs it imports it. From here on, a plain ``import mxnet``
    or ``import paddle`` in your program also gets the preparation that the framework needs.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.framework().__name__
        'numpy'
    """
    global _process, usual_backend
    tracing.refuse("use", "choose the framework outside")
    chosen = None if backend is None else _choose(backend)
    with _LOCK:
        _process = chosen
        usual_backend = None if traced_scopes else registry.LOADED.get(chosen or "")


class using:
    """A ``with`` block in which a framework is the current one, for this thread or task.

    Args:
        backend: As for `use`.

    Raises:
        BackendNotFoundError: The backend does not exist, or its framework is not installed.

    Examples:
        >>> import devshim as ds
        >>> with ds.using("numpy"):
        ...     ds.ones(2)
        array([1., 1.])
    """

    def __init__(self, backend: BackendName) -> None:
        self._name = _choose(backend)

    def __repr__(self) -> str:
        return f"using({self._name!r})"

    def __enter__(self) -> str:
        tracing.refuse_where_read("using", "enter it around the call of the compiled function")
        CHOSEN.set((*CHOSEN.get(), self._name))
        return self._name

    def __exit__(self, *failure: object) -> None:
        # Store no token: the same object may be open in two threads, or may be closed in another context than the one
        # in which it was opened (that of an asynchronous generator).
        CHOSEN.set(CHOSEN.get()[:-1])


@constant_under_compile
def _choose(backend: str) -> str:
    name = discovery.canonical_name(backend)
    if not discovery.is_installed(name):
        raise discovery.not_installed_error(name)
    from devshim.registry import import_hooks

    if name in sys.modules:  # imported already: the first traced call may need its adapter
        registry.load(name)
    import_hooks.prepare_import(name)
    return name


def current() -> Backend:
    """Return the current backend; load it on first use."""
    return registry.LOADED[_loaded_name()]


def backend_on_host(device: object = None) -> Backend | None:
    """Return the current backend if a new tensor belongs on the CPU, by default or because the user gave the CPU.

    None means that `current` and `default_device` must be asked: while a compiler reads the calling code, for another
    device, and before the backend is loaded.
    """
    if tracing.compiler() is not None or (traced_scopes and TRACED.devices):
        return None
    if device is None:
        default = default_devices.innermost()
        if default is not CPU and (default is not None or environment.DEVICE in environment.VALUES):
            return None
    elif device is not CPU and (type(device) is not str or device != "cpu"):
        return None
    open_blocks = CHOSEN.get()
    name = open_blocks[-1] if open_blocks else _process
    name = name or (None if environment.BACKEND in environment.VALUES else _only)
    return registry.LOADED.get(name) if name else None


@constant_under_compile
def _loaded_name() -> str:
    """Load the current backend and return its name."""
    global usual_backend
    open_blocks, usual = CHOSEN.get(), usual_backend
    if usual is not None and not open_blocks:
        return usual.name
    name = open_blocks[-1] if open_blocks else _process or _by_environment()
    found = registry.load(name)
    if not open_blocks:
        with _LOCK:
            if name == _process and not traced_scopes:
                usual_backend = found
    return found.name


def chosen_name() -> str | None:
    """Return the name of the current backend without loading it, or None if none is chosen."""
    open_blocks = CHOSEN.get()
    try:
        return open_blocks[-1] if open_blocks else _process or _by_environment()
    except BackendNotFoundError:
        return None


_asked: dict[str | bytes, str] = {}
"""The value of `DEVSHIM_BACKEND` -> the backend's name. The variable is read on every call, and resolved once."""


def _by_environment() -> str:
    asked = environment.VALUES.get(environment.BACKEND)
    if not asked or asked.isspace():
        return _only_one()
    if asked not in _asked:
        _asked[asked] = _choose(environ["DEVSHIM_BACKEND"].strip())  # Windows' `set` keeps the space before an `&&`
    return _asked[asked]


_only: str | None = None


def _only_one() -> str:
    """Return the only framework that is installed; NumPy, which comes with all of them, counts only without others."""
    global _only
    only = _only
    if only is None:
        environment.warn_about_unread()
        have = discovery.installed_names()
        frameworks = [name for name in have if name not in discovery.REQUIRED_BY_OTHERS] or have
        if len(frameworks) != 1:
            what = f"installed are {', '.join(frameworks)}" if frameworks else "none is installed"
            msg = f"no backend is chosen, and {what}"
            first = (frameworks or list(discovery.REQUIRED_BY_OTHERS))[0]
            raise BackendNotFoundError(msg, f"call ds.use({first!r}) once, or set DEVSHIM_BACKEND in the environment")
        from devshim.registry import import_hooks

        import_hooks.prepare_import(frameworks[0])
        _only = only = frameworks[0]
    return only


@constant_under_compile
def framework(backend: BackendName | None = None) -> ModuleType:
    """Return the framework's own module, imported so that it works together with the other frameworks.

    Args:
        backend: As for `use`; the default is the current backend.

    Raises:
        BackendNotFoundError: Not installed, or none is chosen.
        BackendBrokenError: Its import fails.

    >>> import devshim as ds
    >>> ds.framework("numpy").__name__
    'numpy'
    """
    from importlib import import_module

    serving = current() if backend is None else registry.load(backend)
    return import_module(serving.name)


def backends() -> dict[str, BackendInfo]:
    """Return the installed frameworks by name, without importing any of them.

    Returns:
        The `BackendInfo` of each installed framework: its version, whether it is imported, and known problems of
        importing it together with those that are.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.backends()["numpy"].imported
        True
    """
    from devshim.devices.info import BackendInfo
    from devshim.registry import import_hooks
    from devshim.registry.versions import version_of

    imported = discovery.imported_names()
    return {
        name: BackendInfo(
            name=name,
            title=discovery.title_of(name),
            version=version_of(name),
            imported=name in imported,
            clashes=() if name in imported else import_hooks.clashes(name),
        )
        for name in discovery.installed_names()
    }


def default_device() -> Device:
    """Return the device of the innermost `on` or of `set_device`; without either, the environment's, or the CPU."""
    if TRACED.devices:
        return TRACED.devices[-1]
    if tracing.compiler() is not None:
        tracing.refuse_default_where_read()
    return default_devices.innermost() or _device_by_environment() or CPU


def _device_by_environment() -> Device | None:
    """Return the device that the environment names, or None."""
    if not environment.VALUES.get(environment.DEVICE):
        return None
    try:
        return parsing.device_of_argument(environ["DEVSHIM_DEVICE"].strip() or CPU)
    except DeviceSpecError as error:
        problem = f"the environment variable DEVSHIM_DEVICE names no device: {error.problem}"
        raise DeviceSpecError(problem, "set it to a device, such as gpu:1 or cpu, or unset it") from error
    except DeviceNotFoundError as error:  # it names a platform that the GPU is not of
        raise mention_environment(error) from error.__cause__


def mention_environment(error: DeviceNotFoundError) -> DeviceNotFoundError:
    """Return the error for a default device that does not exist; it names the environment if that chose the device."""
    if TRACED.devices or default_devices.DEFAULT.get() or not environ.get("DEVSHIM_DEVICE"):
        return error
    problem = f"the environment variable DEVSHIM_DEVICE is {environ['DEVSHIM_DEVICE']!r}, but {error.problem}"
    return DeviceNotFoundError(problem, f"correct or unset DEVSHIM_DEVICE; otherwise {error.hint}")
