"""`Conformance`: all test classes of the kit in one class."""

from __future__ import annotations

from devshim.testing.cards import SimulatedCards
from devshim.testing.checkpoints import Checkpoints
from devshim.testing.converting import Converting
from devshim.testing.copying import Copying
from devshim.testing.creating import Creating
from devshim.testing.declared import Declared
from devshim.testing.devices import Devices
from devshim.testing.drawing import Drawing
from devshim.testing.dtypes import Dtypes
from devshim.testing.errors import Errors
from devshim.testing.explaining import Explaining
from devshim.testing.gradients import Gradients
from devshim.testing.guarding import Guarding
from devshim.testing.host import Host
from devshim.testing.interrupts import Interrupts
from devshim.testing.making import Making
from devshim.testing.missing import Missing
from devshim.testing.mixing import Mixing
from devshim.testing.models import Models
from devshim.testing.observed import Observed
from devshim.testing.placing import Placing
from devshim.testing.refused import Refused
from devshim.testing.running import Running
from devshim.testing.scopes import Scopes
from devshim.testing.several import Several
from devshim.testing.simulation import Simulation
from devshim.testing.state import State
from devshim.testing.taken import TakenAway
from devshim.testing.threads import Threads
from devshim.testing.three import ThreeCards
from devshim.testing.traced import EveryCall
from devshim.testing.tracing import Tracing
from devshim.testing.training import Training
from devshim.testing.trees import Trees
from devshim.testing.watching import Watching

__all__ = ["Conformance"]


class Conformance(
    Devices,
    Missing,
    Placing,
    Copying,
    Creating,
    Making,
    Drawing,
    Host,
    Dtypes,
    Gradients,
    Scopes,
    Threads,
    Mixing,
    Trees,
    Converting,
    Tracing,
    EveryCall,
    Running,
    Explaining,
    Errors,
    State,
    Declared,
    Simulation,
    SimulatedCards,
    Interrupts,
    Observed,
    Refused,
    TakenAway,
    Models,
    Training,
    Several,
    Watching,
    Guarding,
    Checkpoints,
    ThreeCards,
):
    """All promises of the contract: set `backend`, write the hooks that your framework needs, and run pytest."""

    __test__ = False

    def __init_subclass__(cls) -> None:
        cls.__test__ = True
        for name in ("backend",):
            if not isinstance(getattr(cls, name, None), str):
                raise TypeError(f"{cls.__name__} must set {name!r} to its framework's import name")
