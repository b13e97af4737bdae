"""One process at a time, on a file system that may not know flock (some of a cluster's do not)."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNKNOWN = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
PAUSE_SECONDS = 0.1
STALE_SECONDS = 600.0  # nobody who holds it takes so long: its maker died


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """While it lasts, no other process is inside with the same path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX)  # freed by the system if its holder dies
        except OSError as error:
            if error.errno not in UNKNOWN:
                raise
            with _made(path.with_name(f"{path.name}.held")):
                yield
            return
        yield


@contextmanager
def _made(path: Path) -> Iterator[None]:
    """Who makes the file is inside; making one is one step on every file system. One left behind grows stale."""
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    path.unlink()
            time.sleep(PAUSE_SECONDS)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
