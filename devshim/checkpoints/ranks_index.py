"""The index of a checkpoint folder, and the names of its files.

Requirements of this module:

* The index is one line of JSON with a checksum. It has no file names: a part's name follows from the save and the rank.
* Its length does not grow with the number of ranks for each tensor: a cut is described once, by its bounds.
* Nothing in it is trusted: bounds, numbers of parts and shapes are checked before a part is opened.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from typing import TYPE_CHECKING, Any

from devshim.checkpoints import paths
from devshim.checkpoints.file import damaged_error, parse_json
from devshim.checkpoints.rows import even_bounds
from devshim.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["INDEX", "encode_index", "is_part", "is_unfinished", "part_name", "read", "unfinished_name"]

INDEX, FORMAT = "index.json", "devshim.folder"
_START, _LONGEST, _MOST = '{"crc32":"', 100_000_000, 1_000_000
_PART = re.compile(r"part-([0-9a-f]{16})-[0-9]{5,7}-of-[0-9]{5,7}\.safetensors")
_UNFINISHED = re.compile(r"saving-([0-9a-f]{16})\.tmp")


def part_name(save: str, rank: int, size: int) -> str:
    """Return the name of a rank's file."""
    return f"part-{save}-{rank:05d}-of-{size:05d}.safetensors"


def unfinished_name(save: str) -> str:
    """Return the name of the folder in which a save writes files before it renames them."""
    return f"saving-{save}.tmp"


def is_part(name: str, save: str | None = None) -> bool:
    """Return True for the name of a part's file: of one save, or of any save without ``save``."""
    found = _PART.fullmatch(name)
    return found is not None and save in (None, found[1])


def is_unfinished(name: str, save: str | None = None) -> bool:
    """Return True for the name of an unfinished save's folder: of one save, or of any save without ``save``."""
    found = _UNFINISHED.fullmatch(name)
    return found is not None and save in (None, found[1])


def encode_index(contents: Mapping[str, Any], save: str, parts: list[list[int]]) -> bytes:
    """Return the bytes of an index."""
    whole = {"format": FORMAT, **contents, "save": save, "parts": parts}
    text = json.dumps(whole, separators=(",", ":"), allow_nan=False).encode()
    return f'{_START}{zlib.crc32(text):08x}","contents":'.encode() + text + b"}\n"


def read(folder: str) -> tuple[dict[str, Any], str]:
    """Return the contents of a folder's index, checked as far as it describes files, and its checksum.

    Raises:
        CheckpointError: It is damaged; or it does not exist or cannot be read, and then it is an `OSError`, too.
    """
    path = os.path.join(folder, INDEX)
    try:
        if os.stat(path).st_size > _LONGEST:
            raise damaged_error(path, "it is longer than an index can be")
        with open(path, "rb") as file:
            data = file.read(_LONGEST)
    except CheckpointError:
        raise
    except OSError as error:
        raise paths.system_error(path, error, "cannot be read", "load a folder that ds.save completed") from error
    start = len(_START) + len('xxxxxxxx","contents":')
    text = data[start:-2]
    crc32 = f"{zlib.crc32(text):08x}"
    if data[:start] != f'{_START}{crc32}","contents":'.encode() or data[-2:] != b"}\n":
        raise damaged_error(path, "its checksum differs, or it is not an index")
    contents = parse_json(path, text)
    why = _flaw(contents)
    if why is not None:
        raise damaged_error(path, why)
    return contents, crc32


def _flaw(contents: Any) -> str | None:
    """Return why the description of the files is invalid, or None."""
    if not isinstance(contents, dict) or contents.get("format") != FORMAT:
        return "it is not the index of a checkpoint"
    save, parts, cuts, tensors = (contents.get(name) for name in ("save", "parts", "cuts", "tensors"))
    if not isinstance(save, str) or re.fullmatch("[0-9a-f]{16}", save) is None:
        return "the name of its save is invalid"
    if not isinstance(parts, list) or not 1 <= len(parts) <= _MOST or not all(map(_is_part_entry, parts)):
        return "its list of parts is invalid"
    if not isinstance(cuts, list) or not all(_is_cut(cut, len(parts)) for cut in cuts):
        return "the bounds of the rows of a part are invalid"
    if not isinstance(tensors, list) or not all(_is_located(each, len(parts), cuts) for each in tensors):
        return "a tensor names a part that does not exist, or bounds that do not"
    if len({each["name"] for each in tensors}) != len(tensors):
        return "two tensors have the same name"
    return None


def _is_part_entry(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and all(type(each) is int and each >= 0 for each in entry)


def _is_cut(cut: Any, size: int) -> bool:
    if not isinstance(cut, list) or len(cut) != size + 1 or not all(type(each) is int for each in cut):
        return False
    return bool(cut[0] == 0) and cut == sorted(cut)


def _is_located(entry: Any, size: int, cuts: list[list[int]]) -> bool:
    """Return True if a tensor is in one part, or is cut over all of them without gaps."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not _is_shape(entry.get("shape")):
        return False
    if "cut" not in entry:
        part = entry.get("part")
        return type(part) is int and 0 <= part < size
    cut, shape = entry["cut"], entry["shape"]
    if not shape or "part" in entry:
        return False
    return cut is None or (type(cut) is int and 0 <= cut < len(cuts) and cuts[cut][-1] == shape[0])


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and len(shape) <= 64 and all(type(n) is int and 0 <= n < 2**63 for n in shape)


def bounds(contents: Mapping[str, Any], entry: Mapping[str, Any]) -> list[int]:
    """Return the bounds of a cut tensor."""
    if entry["cut"] is None:
        return even_bounds(entry["shape"][0], len(contents["parts"]))
    found: list[int] = contents["cuts"][entry["cut"]]
    return found
