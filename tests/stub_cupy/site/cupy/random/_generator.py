"""The existing generators, by the number of their GPU."""

from __future__ import annotations

import numpy as np

from cupy import _machine

_random_states: dict[int, np.random.RandomState] = {}


def get_random_state() -> np.random.RandomState:
    _machine.contexts.add(_machine.current())
    return _random_states.setdefault(_machine.current(), np.random.RandomState())
