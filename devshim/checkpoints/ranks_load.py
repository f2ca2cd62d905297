"""Load by all ranks: the ranks compare what they read, and no rank changes anything until all have everything."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from devshim.checkpoints import file as file_module
from devshim.checkpoints import ranks_read
from devshim.checkpoints.ranks_agree import Readiness, gather_results
from devshim.checkpoints.rows import bounds_of, even_bounds, rows_in
from devshim.errors import CheckpointError
from devshim.registry import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.checkpoints.file import OpenFile
    from devshim.checkpoints.ranks_read import Folder
    from devshim.checkpoints.rows import Ranks, Rows

    Cuts = dict[int, tuple[int, int, int]]

__all__ = ["load", "open_checkpoint", "row_count", "row_range"]


@contextmanager
def open_checkpoint(path: str) -> Iterator[OpenFile | Folder]:
    """Open a checkpoint file or folder."""
    if ranks_read.is_folder(path):
        with ranks_read.open_folder(path) as folder:
            yield folder
    else:
        with file_module.open_file(path) as file:
            yield file


def row_count(rows: Rows) -> int:
    """Return the number of rows of this rank."""
    backend = registry.backend_for(rows.part)
    assert backend is not None  # `rows_in` refuses other leaves
    return int(backend.shape(rows.part)[0])


def row_range(world: Ranks, total: int) -> tuple[int, int]:
    """Return the first row of this rank, and the one after its last, as in `World.part`."""
    bounds = even_bounds(total, world.size)
    return bounds[world.rank], bounds[world.rank + 1]


def load(path: str, into: Any, world: Ranks, read: Callable[..., Any]) -> Any:
    """Load with all ranks.

    Args:
        path: The file or folder.
        into: The target, or None.
        world: The ranks.
        read: Called with the open file, the cuts of the target, and a function to call when it has read everything;
            returns the result.
    """
    with ExitStack() as opened:
        found: list[Any] = []

        def begin() -> dict[str, Any]:
            found.append(rows_in(into))
            found.append(opened.enter_context(open_checkpoint(path)))
            file = found[1]
            identity = file.identity if file.is_folder else str(file.size)
            return {"is": identity, "rows": [row_count(each) for each in found[0]], "host": str(world.host)}

        facts = gather_results(world, "ds.load", begin)
        _require_one_file(path, facts)
        readiness = Readiness(world)
        try:
            return read(found[1], _find_cuts(world, found[0], facts), readiness.wait_until_ready)
        except BaseException as error:
            readiness.report_failure(error)
            raise


def _require_one_file(path: str, facts: list[dict[str, Any]]) -> None:
    """Raise the same error on all ranks if they do not load the same thing into the same tree."""
    for rank, each in enumerate(facts):
        who = f"rank {rank} on {each['host']}"
        if each["is"] != facts[0]["is"]:
            msg = f"{path!r} is not the same for {who} as for rank 0 on {facts[0]['host']}"
            raise CheckpointError(msg, "load from a folder that all hosts share, while no other job saves to it")
        if len(each["rows"]) != len(facts[0]["rows"]):
            msg = f"`into` has {len(each['rows'])} ds.Rows on {who}, and {len(facts[0]['rows'])} on rank 0"
            raise CheckpointError(msg, "pass the same tree on all ranks")


def _find_cuts(world: Ranks, found: list[Rows], facts: list[dict[str, Any]]) -> Cuts:
    """Return the rows of each `Rows` of the target, and the number of rows of all ranks together."""
    cuts = {}
    for i, rows in enumerate(found):
        bounds = bounds_of([each["rows"][i] for each in facts])
        cuts[id(rows)] = (bounds[world.rank], bounds[world.rank + 1], bounds[-1])
    return cuts
