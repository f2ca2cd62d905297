"""Errors: their classes, the wording that adapters share, and how values are shown in them."""

from devshim.errors.types import (
    AlreadyStartedError as AlreadyStartedError,
)
from devshim.errors.types import (
    ArgumentError as ArgumentError,
)
from devshim.errors.types import (
    BackendBrokenError as BackendBrokenError,
)
from devshim.errors.types import (
    BackendConflictError as BackendConflictError,
)
from devshim.errors.types import (
    BackendError as BackendError,
)
from devshim.errors.types import (
    BackendNotFoundError as BackendNotFoundError,
)
from devshim.errors.types import (
    CheckpointError as CheckpointError,
)
from devshim.errors.types import (
    ConversionError as ConversionError,
)
from devshim.errors.types import (
    CopyNeededError as CopyNeededError,
)
from devshim.errors.types import (
    DeviceError as DeviceError,
)
from devshim.errors.types import (
    DeviceFailedError as DeviceFailedError,
)
from devshim.errors.types import (
    DeviceMismatchError as DeviceMismatchError,
)
from devshim.errors.types import (
    DeviceNotFoundError as DeviceNotFoundError,
)
from devshim.errors.types import (
    DeviceSpecError as DeviceSpecError,
)
from devshim.errors.types import (
    DevshimError as DevshimError,
)
from devshim.errors.types import (
    NotATensorError as NotATensorError,
)
from devshim.errors.types import (
    OutOfMemoryError as OutOfMemoryError,
)
from devshim.errors.types import (
    PlacementError as PlacementError,
)
from devshim.errors.types import (
    SimulationError as SimulationError,
)
from devshim.errors.types import (
    TracingError as TracingError,
)
from devshim.errors.types import (
    TransferError as TransferError,
)
from devshim.errors.types import (
    UnsupportedError as UnsupportedError,
)
from devshim.errors.types import joined as joined

__all__ = [
    "AlreadyStartedError",
    "ArgumentError",
    "BackendBrokenError",
    "BackendConflictError",
    "BackendError",
    "BackendNotFoundError",
    "CheckpointError",
    "ConversionError",
    "CopyNeededError",
    "DeviceError",
    "DeviceFailedError",
    "DeviceMismatchError",
    "DeviceNotFoundError",
    "DeviceSpecError",
    "DevshimError",
    "NotATensorError",
    "OutOfMemoryError",
    "PlacementError",
    "SimulationError",
    "TracingError",
    "TransferError",
    "UnsupportedError",
]
