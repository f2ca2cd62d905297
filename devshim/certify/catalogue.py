"""The list of all claims, in the order in which they are checked."""

from __future__ import annotations

from fnmatch import fnmatchcase

from devshim.certify import (
    contexts,
    exchange,
    memory,
    models,
    observers,
    on_jax,
    on_mxnet,
    on_paddle,
    on_tensorflow,
    on_torch,
    rates,
    scopes,
    several,
    start,
    tensors,
)
from devshim.certify.claims import Claim, Setting

__all__ = ["claims_for"]

_GENERAL = (start, contexts, tensors, scopes, observers, models, several, exchange)
_OWN = {"torch": on_torch, "jax": on_jax, "tensorflow": on_tensorflow, "paddle": on_paddle, "mxnet": on_mxnet}
_LAST = (memory, rates)
"""The claims that fill a GPU, or need it for themselves, come after the rest."""


def claims_for(at: Setting) -> list[Claim]:
    """Return the claims about one framework; every process gets the same list."""
    own = [_OWN[at.backend]] if at.backend in _OWN else []
    claims = [claim for module in (*_GENERAL, *own) for claim in module.CLAIMS]
    claims += exchange.pairs(at)
    claims += [claim for module in _LAST for claim in module.CLAIMS]
    about = [claim for claim in claims if not claim.only or at.backend in claim.only]
    return [claim for claim in about if fnmatchcase(claim.name, at.only)]
