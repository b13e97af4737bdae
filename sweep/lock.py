"""One process at a time, on a file system that may not know flock (some of a cluster's do not).

filelock 4.2.10 was measured and frees no dead holder's lock there: its SoftFileLock none of another host, and neither
that nor its SoftFileLease any where two names cannot be exchanged, as on NFS (0 of 8 freed within 20 s).
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
STALE_SECONDS = 120.0  # without a beat; file systems of clusters show a change up to a minute late
FREE = ".free"  # hidden: what is not would travel with the results


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
            with _holding(path.with_name(f"{path.name}.token")):
                yield
            return
        yield


@contextmanager
def _holding(folder: Path) -> Iterator[None]:
    """Hold the token in `folder`, a file whose name says who has it: `.free`, or a word that is never used again.

    It changes hands by being renamed from the name it was seen under, which is one step on every file system and
    succeeds for one process alone. So nobody takes what another has just taken over from the dead, and whoever was
    overtaken, because it stood still, gives nothing back.
    """
    mine, over = folder / f".{uuid.uuid4().hex}", threading.Event()
    _take(folder, mine)
    threading.Thread(target=_beat, args=(mine, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()
        with suppress(FileNotFoundError):  # taken over
            mine.rename(folder / FREE)


def _take(folder: Path, mine: Path) -> None:
    """Wait until the token is free, or its holder gave no beat for as long as this process watched (by its own clock:
    those of two hosts differ), and rename it to `mine`."""
    seen, since = None, time.monotonic()
    while True:
        if not folder.exists():
            _make(folder)
        for token in folder.iterdir():  # one, or none while it is being renamed
            if token == mine:  # renamed, although the answer got lost on its way
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
    """Make the folder with the token in it in one step: where another has, it is not empty and nothing is renamed."""
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
    """Touch the token now and then, until it is given back: a holder that lives is never taken for dead."""
    while not over.wait(BEAT_SECONDS):
        with suppress(OSError):  # a file system that does not answer for a moment
            os.utime(mine)
