"""The installed version of a framework, read from its metadata without importing anything."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from devshim.registry import discovery

__all__ = ["version_of"]


def version_of(backend: str) -> str | None:
    """Return the version of the distribution that provides a backend's framework, or None without metadata."""
    for distribution in discovery.DISTRIBUTIONS.get(backend, (backend,)):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None
