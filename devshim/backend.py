"""The contract of an adapter, under the import path that adapters use: see `devshim.contract.backend`."""

from devshim.contract.backend import FEATURES, Backend, Gap, Tensor

__all__ = ["FEATURES", "Backend", "Gap", "Tensor"]
