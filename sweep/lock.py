"""Locks between processes, also on file systems without flock (some of a cluster's).

filelock 4.2.10 was measured there: its SoftFileLock never frees the lock of a dead process on another host, and neither
it nor its SoftFileLease frees any where two names cannot be exchanged, as on NFS (0 of 8 freed within 20 s).
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNKNOWN = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
PAUSE_SECONDS = 0.1
BEAT_SECONDS = 5.0
STALE_SECONDS = 120.0  # since the last touch; file systems of clusters may show a change a minute late
FREE = ".free"  # hidden, so that it is not copied with the results


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the lock `path`, so that only one process at a time runs the body; wait for it if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX)  # the system frees it if the process dies
        except OSError as error:
            if error.errno not in UNKNOWN:
                raise
            with _holding(path.with_name(f"{path.name}.token")):
                yield
            return
        yield


@contextmanager
def _holding(folder: Path) -> Iterator[None]:
    """Hold the token in `folder`: a file named `.free`, or by a unique word of the process that holds it.

    It is taken by renaming it from the name it was seen under, which is atomic on every file system and succeeds for
    one process only. So no process takes what another has just taken from a dead one, and a process that was overtaken
    while it was suspended gives nothing back.
    """
    mine, over = folder / f".{uuid.uuid4().hex}", threading.Event()
    _take(folder, mine)
    threading.Thread(target=_beat, args=(mine, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()
        with suppress(FileNotFoundError):  # another process has taken it
            mine.rename(folder / FREE)


def _take(folder: Path, mine: Path) -> None:
    """Rename the token to `mine` once it is free or has not been touched for STALE_SECONDS.

    The time is measured by this process's own clock, because the clocks of two hosts differ.
    """
    seen, since = None, time.monotonic()
    while True:
        if not folder.exists():
            _make(folder)
        for token in folder.iterdir():  # one, or none during a rename
            if token == mine:  # renamed before, although an error was reported
                return
            with suppress(FileNotFoundError):  # another was faster
                now = token, token.stat().st_mtime_ns
                if now != seen:
                    seen, since = now, time.monotonic()
                if token.name == FREE or time.monotonic() - since > STALE_SECONDS:
                    token.rename(mine)
                    return
        time.sleep(PAUSE_SECONDS)


def _make(folder: Path) -> None:
    """Create the folder with its token in one step; if another process has done so, keep that one."""
    beside = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
    beside.mkdir()
    (beside / FREE).touch()
    try:
        beside.rename(folder)
    except OSError as error:
        shutil.rmtree(beside)
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _beat(mine: Path, over: threading.Event) -> None:
    """Touch the token every BEAT_SECONDS until it is given back, so that its holder counts as alive."""
    while not over.wait(BEAT_SECONDS):
        with suppress(OSError):  # the file system may fail for a moment
            os.utime(mine)
