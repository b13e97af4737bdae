"""Files that many threads read piece by piece at random places.

They are read by `pread`, not mapped into memory. From a disk, a map reads a whole window around every page that is
touched: with Linux's read-ahead of 128 KiB 1.8 times the bytes of `raw` records and 5 times those of `jpeg` records
(docs/data.md). A disk that fails ends a process with a map without a word. And Python keeps the file of every map open:
ImageNet has 1,700 shards, and often only 1,024 files may be open.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from weakref import finalize

import numpy as np

from sweep.errors import Refused

MOST_OPEN = 1 << 16


class Pieces:
    """An open file that threads read at any place. Its last reference closes it, so never while one reads it."""

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        self.path = path
        self._handle = os.open(path, flags)
        finalize(self, os.close, self._handle)

    def read(self, first: int, out: np.ndarray) -> None:
        """Fill `out` with the bytes from `first` on; raise OSError if the disk fails, Refused if the file ends."""
        left = memoryview(out.data).cast("B")
        while left:
            try:
                count = os.preadv(self._handle, [left], first)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.path)) from None
            if not count:
                raise Refused(f"{self.path}: ends at byte {first}, {len(left)} bytes before the end of an image")
            left, first = left[count:], first + count

    def write(self, first: int, content: np.ndarray) -> None:
        left = memoryview(content.data).cast("B")
        while left:
            count = os.pwrite(self._handle, left, first)
            left, first = left[count:], first + count


def forget(paths: Iterable[Path]) -> None:
    """Take files out of the system's cache, so that they are read from the disk again."""
    for path in paths:
        with path.open("rb") as file:
            os.fdatasync(file)  # what is not written yet stays
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def kept_open(path_of: Callable[[int], Path]) -> Callable[[int], Pieces]:
    """Return a function that opens a file by its number and keeps it open.

    At most a quarter of the files that this process may have open are kept, because a training reads up to three
    splits. The limit is raised as far as the system allows.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(soft, MOST_OPEN if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return lru_cache(most // 4)(lambda number: Pieces(path_of(number)))
