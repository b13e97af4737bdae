"""How many trainings compute on a GPU at a moment, of whichever sweeps: each holds a locked file as long as it lives.

What a GPU-hour bought can be said only with it: of n trainings beside each other, each takes 1/n of the GPU.
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
    """While it lasts this process is one of them; gives what says how many there are; None without a GPU.

    On several GPUs the harmonic mean: of each it takes 1/n.
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
        except OSError as error:  # no reason to lose a training
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
    (folder / f".{name}").rename(folder / name)  # seen by others only once it is locked


def _remove(path: Path) -> None:
    with suppress(OSError):  # what stays is nobody's, and the next one removes it
        path.unlink()


def _held(folder: Path) -> int:
    count = 0
    for path in folder.glob("[!.]*"):
        try:
            with open(path) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)  # nobody holds it: its process was killed
        except BlockingIOError:
            count += 1
        except OSError:  # it ended between the listing and here, or is no file of ours: no reason to lose a training
            continue
    return max(count, 1)
