"""The values in a safetensors file, read into their own memory.

Requirements of this module:

* A file is read, and not mapped: mapped pages would count as memory of the process in addition to the tensors, and a
  file that another program shortens meanwhile would crash the process.
* The memory is aligned for each framework, whose tensors can therefore use it without a copy.
* The checksum is found while the bytes are still in the processor's cache, not in a second pass over memory.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from devshim.checkpoints.crc import CHUNK
from devshim.transfers import alignment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from io import FileIO

    import numpy as np

__all__ = ["Values"]


class Values:
    """The values in an open file whose header the library has checked.

    Args:
        file: The file, open for reading without a buffer, at the end of its header.
        header: Its header.
    """

    def __init__(self, file: FileIO, header: Mapping[str, Any]) -> None:
        self._file = file
        start = file.tell()
        self._places: dict[str, tuple[int, int]] = {
            name: (start + entry["data_offsets"][0], start + entry["data_offsets"][1])
            for name, entry in header.items()
            if name != "__metadata__"
        }

    def read(
        self,
        name: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        skip: int = 0,
        check: Callable[[memoryview], None] | None = None,
    ) -> np.ndarray:
        """Return a tensor, or some of its rows, in new memory.

        Args:
            name: Its name in the file.
            dtype: The dtype of its values in the file.
            shape: The shape of the result.
            skip: How many bytes of the tensor come before the result.
            check: Gets the bytes, in order, a few hundred kilobytes at a time; without it they are read in one call.

        Raises:
            ValueError: The file does not have as many bytes.
            OSError: The system cannot read them.
        """
        begin, end = self._places[name]
        nbytes = prod(shape) * dtype.itemsize
        if not 0 <= skip <= skip + nbytes <= end - begin:
            msg = f"{nbytes} bytes are needed, and the file has {end - begin - skip}"
            raise ValueError(msg)
        memory = alignment.aligned_bytes(nbytes)
        self._file.seek(begin + skip)
        done, step = 0, CHUNK if check is not None else nbytes
        while done < nbytes:  # Linux reads at most 2 GiB in one call
            got = self._file.readinto(memory.data[done : done + step])
            if not got:
                msg = "the file has become shorter"
                raise ValueError(msg)
            if check is not None:
                check(memory.data[done : done + got])
            done += got
        return memory.view(dtype).reshape(shape)
