"""One Ray for the ranks that another launcher started on this machine: rank 0 starts it, and the others find it.

The ranks share their launcher, so a file whose name contains the launcher's process number and start time gives the
others the address. Only this user can read the folder of the file. Ray listens only on 127.0.0.1 and requires a token.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from devshim.contract.rank_engines import collective_timeout
from devshim.contract.ranks import Place
from devshim.errors import WorldError
from devshim.registry.processes import system_facts
from devshim.world import cluster, folders, ray_start, siblings
from devshim.world.reaching import require_cluster, unconnected_error

__all__ = ["join", "start_time", "write_facts"]

_STARTING = 120.0


def join(imported: Callable[[], Any], place: Place, options: dict[str, Any]) -> Any:
    """Start Ray as rank 0, or connect to the Ray of rank 0, and return its module.

    Ray reads the token when it is imported, so ``imported`` is called once the token is known.

    Raises:
        RankLateError: Rank 0 did not begin to start it in time.
        WorldError: Rank 0 did not start it within two minutes, it has ended, or the folder is another user's.
    """
    engine = f"{zlib.crc32(place.engine_address.encode()):08x}"  # not part of a path: another program has set it
    parent = siblings.launcher()
    file = _folder() / f"{parent}-{start_time(parent)}-{engine}.json"
    namespace = f"devshim-{file.stem}"
    if place.rank == 0:
        write_facts(file, {})  # the others see that this rank is there
        atexit.register(lambda: file.unlink(missing_ok=True))
        token = secrets.token_hex(32)
        _set_token(token)
        folder = folders.new()
        # Registered before Ray is imported, so that it runs after Ray's end.
        atexit.register(folders.remove, folder)
        ray = imported()
        with cluster.disable_extra_processes(), cluster.restore_sigterm(also_default=False):
            found = ray_start.init(
                address="local",
                num_cpus=1,
                num_gpus=0,
                include_dashboard=False,
                _node_ip_address="127.0.0.1",
                _temp_dir=str(folder / "ray"),
                object_store_memory=_store(),
                namespace=namespace,
                **options,
            )
        write_facts(file, {"address": found["gcs_address"], "token": token})
        return ray
    facts = _wait_for(file, place)
    require_cluster(facts["address"], place.timeout)  # rank 0 may have been killed
    _set_token(facts["token"])
    ray = imported()
    with cluster.restore_sigterm():
        ray_start.init(address=facts["address"], _node_ip_address="127.0.0.1", namespace=namespace, **options)
    return ray


def _store() -> int:
    """Return the maximum bytes of shared memory for objects: a tenth of the machine's, at least 200 MB."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(pages // 10, 200 * 1024**2)


def _set_token(token: str) -> None:
    os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"] = "token", token


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"devshim-world-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    return cluster.require_private(folder, "remove it: the ranks of a job find each other by it")


def write_facts(file: Path, facts: dict[str, Any]) -> None:
    """Write a file atomically; only this user can read it."""
    new = file.with_suffix(f".{os.getpid()}")
    new.touch(mode=0o600)
    new.write_text(json.dumps(facts))
    new.replace(file)


def _wait_for(file: Path, place: Place) -> dict[str, str]:
    began = time.monotonic()
    while True:
        facts: dict[str, str] | None = None
        with suppress(FileNotFoundError):
            facts = json.loads(file.read_text())
        if facts:
            return facts
        waited = time.monotonic() - began
        if facts is None and waited > collective_timeout(place):
            raise unconnected_error(place, began, [0])
        if waited > _STARTING:
            msg = f"{place.name_rank(place.rank)} has waited {waited:.0f} s for rank 0, which starts Ray"
            hint = "one process must start all ranks, and each must call a collective of ds.world()"
            raise WorldError(msg, f"{hint}; see whether rank 0 failed")
        time.sleep(0.05)


def start_time(process: int) -> str:
    """Return the start time of a process in the system's units; process numbers are reused."""
    with suppress(OSError):
        return system_facts(process)[19]
    return "0"
