"""Check the namespace of a framework: ``python tests/array_api NAME [RESULTS.json]`` prints what fails."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_ENABLE_X64", "1")  # as for array-api-compat: without it JAX has no 64-bit dtypes

from cases import ALL
from checker import Checker

import devshim as ds
from devshim.registry.discovery import TITLES
from devshim.registry.versions import version_of


def compat(name: str) -> Any:
    """Return array-api-compat's own namespace, or None if it does not support the framework."""
    if name not in ("numpy", "torch", "jax"):
        return None
    import array_api_compat

    return array_api_compat.array_namespace(ds.zeros(1))


def main(name: str, *results: str) -> None:
    """Check a framework on the CPU and on a simulated GPU that is not the default one."""
    backend = "mxnet" if name.startswith("mxnet") else name
    ds.use(backend)
    ds.simulate(gpus=2)
    found: dict[str, Any] = {"name": name, "title": TITLES[backend], "version": version_of(backend)}
    for device in ("cpu", "gpu:1"):
        checker = Checker(ds.namespace(), backend, device)
        found[device] = {call: checker.check(call) for call in ALL}
    native = compat(backend)
    if native is not None:
        checker = Checker(native, backend, "cpu", foreign=True)
        found["array-api-compat"] = {call: checker.check(call) for call in ALL}
    for where, calls in found.items():
        if isinstance(calls, dict):
            print(f"{name} {where}: {sum(each == 'pass' for each in calls.values())} of {len(calls)}")
            for call, result in calls.items():
                if result != "pass":
                    print(f"    {call}: {result}")
    for path in results:
        Path(path).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
