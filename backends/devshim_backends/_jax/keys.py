"""Random keys: arrays whose dtype no other library has. Checkpoints store their data and the name of the generator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax

from devshim.contract.backend import Backend
from devshim.errors import ConversionError
from devshim.errors.formatting import show

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor


class JaxKeys(Backend):
    """The mixin for random keys."""

    def random_key(self, x: Tensor) -> tuple[str, Tensor] | None:
        if not jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            return None
        return str(jax.random.key_impl(x)), jax.random.key_data(x)

    def from_random_key(self, data: Tensor, generator: str) -> Tensor:
        try:
            return jax.random.wrap_key_data(data, impl=generator)
        except (ValueError, TypeError) as error:
            msg = f"JAX cannot make a key of the generator {show(generator)} from {data.dtype} of shape {data.shape}"
            raise ConversionError(msg, "load the file with the version of JAX that wrote it") from error


__all__ = ["JaxKeys"]
