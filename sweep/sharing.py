"""The number of trainings that use a GPU now, in all sweeps of this user: each holds a locked file while it runs.

It is needed to count GPU-hours: with n trainings on a GPU, each uses 1/n of it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import harmonic_mean

from sweep.progress import console


@contextmanager
def counted(gpus: Sequence[str], place: Path | None = None) -> Iterator[Callable[[], float | None]]:
    """Count this process on its GPUs; yield a function that returns how many trainings there are, None without a GPU.

    For several GPUs it is the harmonic mean, since the process uses 1/n of each.
    """
    if not gpus:
        yield lambda: None
        return
    place = place or Path(tempfile.gettempdir()) / f"lottery-{os.getuid()}" / "gpus"
    folders = [place / gpu for gpu in gpus]
    with ExitStack() as held:
        try:
            for folder in folders:
                _hold(folder, held)
        except OSError as error:  # not a reason to fail the training
            console.print(f"{error}; the GPU-hours of this training are counted as if it had its GPUs alone")
            folders = []
        yield lambda: harmonic_mean([_held(folder) for folder in folders] or [1])


def _hold(folder: Path, held: ExitStack) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    for path in (folder / name, folder / f".{name}"):
        held.callback(_remove, path)
    file = held.enter_context((folder / f".{name}").open("w"))
    fcntl.flock(file, fcntl.LOCK_EX)
    (folder / f".{name}").rename(folder / name)  # visible to others only once it is locked


def _remove(path: Path) -> None:
    with suppress(OSError):  # the next process removes it
        path.unlink()


def _held(folder: Path) -> int:
    count = 0
    for path in folder.glob("[!.]*"):
        try:
            with open(path) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)  # not locked: its process was killed
        except BlockingIOError:
            count += 1
        except OSError:  # it has ended meanwhile, or is not our file
            continue
    return max(count, 1)
