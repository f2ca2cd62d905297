"""Every error devshim raises, in one tree.

::

    DevshimError
    ├── ArgumentError (ValueError)              an argument that makes no sense on any framework
    ├── NotATensorError (TypeError)             the object belongs to no supported framework
    ├── DeviceError
    │   ├── DeviceSpecError (ValueError)        the text or object names no device
    │   ├── DeviceNotFoundError (LookupError)   it names one that this machine does not have
    │   ├── DeviceMismatchError (ValueError)    arguments are on different devices
    │   └── DeviceFailedError (RuntimeError)    a device that existed no longer answers
    ├── BackendError
    │   ├── BackendNotFoundError (ImportError)  the framework is not installed, or none is chosen
    │   ├── BackendBrokenError (ImportError)    it is installed, and its import fails
    │   └── BackendConflictError (ImportError)  two distributions claim one name, or two frameworks clash
    ├── PlacementError (RuntimeError)           a result is not where it was asked to be
    │   └── CopyNeededError (ValueError)        copy=False was given, but a copy is needed
    ├── CheckpointError (ValueError)            a file is not a checkpoint, is damaged, or does not fit
    ├── ConversionError (TypeError)             no faithful conversion between the two frameworks
    ├── TransferError (RuntimeError)            a guarded transfer happened
    ├── TracingError (RuntimeError)             not possible inside a compiled function
    ├── SimulationError (RuntimeError)          simulated GPUs cannot be enabled now, or were removed
    ├── AlreadyStartedError (RuntimeError)      a setting came after a framework started its devices
    ├── OutOfMemoryError (MemoryError)          a device has too little free memory
    ├── WorldError (RuntimeError)               a job of several ranks cannot start, or failed
    │   ├── RankFailedError                     a rank's process ended with an error
    │   ├── RankLateError (TimeoutError)        a rank did not reach a collective in time
    │   ├── RanksDisagreeError                  ranks call different collectives
    │   └── HostLostError                       a host is gone or unreachable
    └── UnsupportedError (NotImplementedError)  the backend declares that it cannot do this, and why

A message is one sentence that says what was asked and what is true, then a blank line, then ``Hint:`` and what to
type next. The neutral half writes the texts, so that they read the same on every framework. An error that the
framework itself raised is chained as ``__cause__``.
"""

from devshim.errors.types import *  # noqa: F403
from devshim.errors.types import JoinedError as JoinedError  # for adapters
from devshim.errors.types import __all__ as __all__
