"""Who trains a task now, and how often that was begun: `claim.json` beside its results.

Two experiments may ask for the same training at the same time: whoever comes second finds that the claim is alive and
leaves it alone. Where its process can be seen it is alive while that is, elsewhere while its file is touched.

A cluster can lose sight of a node whose processes live on, and start the same task elsewhere. That start is a later
turn of the same job, and owns the task from then on; the earlier one finds that out before it writes anything and ends.
A task that is begun again and again without getting anywhere is given up.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path

from sweep import files
from sweep.errors import Busy, Stuck, Superseded
from sweep.lock import alone

BEAT_SECONDS = 10.0
STALE_SECONDS = 120.0  # after the last touch; file systems of clusters show a change up to a minute late


@dataclass(frozen=True)
class Claim:
    """The latest start of a task."""

    owner: str  # unique to this start
    starts: int  # since the task was new
    idle_starts: int  # since it last got further
    reached: str  # epoch and step of its checkpoint at this start
    began: float  # seconds since 1970
    host: str
    pid: int
    job: str = ""  # of the batch system, if it runs in one
    turn: int = 0  # of the job: how often that was begun again
    kernel: str = ""  # boot and namespace within which its pid means something
    born: str = ""  # when its process began, by that kernel's clock: a pid is given out again


def take(folder: Path, restarts: int | None = None) -> Claim:
    """Become the owner of the task in `folder`; give it up after more than `restarts` starts from the same point."""
    before = read(folder)
    if before is not None and alive_elsewhere(folder, before):
        raise Busy(f"{_named(folder)}: process {before.pid} on {before.host} trains it since {_when(before.began)}, "
                   f"last sign of life {_when(_touched(folder))}")  # fmt: skip
    reached = _reached(folder)
    further = before is None or before.reached != reached
    claim = Claim(
        owner=uuid.uuid4().hex,
        starts=before.starts + 1 if before else 1,
        idle_starts=1 if further or before is None else before.idle_starts + 1,
        reached=reached,
        began=time.time(),
        host=_host(),
        pid=os.getpid(),
        job=own_job(),
        turn=own_turn(),
        kernel=_kernel(),
        born=_born(os.getpid()),
    )
    if restarts is not None and before is not None and claim.idle_starts > restarts + 1:
        raise Stuck(
            f"begun {before.idle_starts} times without getting past {reached or 'its beginning'}, last on {before.host}"
            f"{f' in job {before.job}' if before.job else ''}; its log may say why"
        )
    with alone(folder / ".claim.lock"):  # of two that find the task new, or the same claim dead, one has it
        now = read(folder)
        if now is not None and (before is None or now.owner != before.owner):
            raise Busy(f"{_named(folder)}: process {now.pid} on {now.host} began it at this moment")
        files.write_json(folder / "claim.json", claim)
    return claim


def read(folder: Path) -> Claim | None:
    return files.read(folder / "claim.json", Claim)


def forgive(folder: Path) -> None:
    """Count the starts without progress anew. That is no sign of life: the time of the last touch stays."""
    claim, path = read(folder), folder / "claim.json"
    if claim:
        touched = path.stat().st_mtime
        files.write_json(path, replace(claim, idle_starts=0))
        os.utime(path, (touched, touched))


def check(folder: Path, claim: Claim) -> None:
    """Ends a training that was begun again elsewhere in the meantime: what it would write is no longer wanted."""
    now = read(folder)
    if now is None or now.owner != claim.owner:
        where = f" on {now.host}" if now else ""
        raise Superseded(f"{_named(folder)}: begun again elsewhere{where}; this process leaves it alone")


def alive_elsewhere(folder: Path, claim: Claim) -> bool:
    """Whether another process trains it now. A later turn of the same job of a batch system is no other."""
    if claim.job and claim.job == own_job() and own_turn() > claim.turn:
        return False
    here = works(folder, claim)
    if here is not None:
        return here and claim.pid != os.getpid()
    return _moves(folder)


_STILL: dict[Path, tuple[float, float]] = {}  # of a claim from the future: its time, and when this process first saw it


def _moves(folder: Path) -> bool:
    """Whether a claim was touched within STALE_SECONDS.

    The age of one whose time lies in the future says nothing: another machine's clock is off. It counts as alive until
    it has not moved for as long under the eyes of this process.
    """
    touched = _touched(folder)
    if touched - time.time() < STALE_SECONDS:
        return time.time() - touched < STALE_SECONDS
    if _STILL.get(folder, (0.0, 0.0))[0] != touched:
        _STILL[folder] = touched, time.monotonic()
    return time.monotonic() - _STILL[folder][1] < STALE_SECONDS


def answers(folder: Path, claim: Claim) -> bool:
    """Whether its process works on it, as far as can be told from here: seen, or its claim was touched just now."""
    here = works(folder, claim)
    return here if here is not None else abs(time.time() - _touched(folder)) < STALE_SECONDS


@contextmanager
def beating(folder: Path, claim: Claim) -> Iterator[None]:
    """Touch the claim now and then for as long as the work goes on; at its end it is free at once."""
    over = threading.Event()

    def touch(times: tuple[int, int] | None = None) -> None:
        """Unless it is another's by now."""
        with suppress(OSError, Superseded):  # a file system that does not answer for a moment
            check(folder, claim)
            os.utime(folder / "claim.json", times)

    def beat() -> None:
        while not over.wait(BEAT_SECONDS):
            touch()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        touch((0, 0))


def works(folder: Path, claim: Claim) -> bool | None:
    """Whether its process works on it; None where that cannot be known from here."""
    if not _touched(folder):  # it was let go
        return False
    if (claim.host, claim.kernel) != (_host(), _kernel()):
        return None
    return bool(claim.born) and _born(claim.pid) == claim.born


def _named(folder: Path) -> str:
    """Return the name of the training, also where it is trained again in a folder within its own."""
    return folder.name if folder.parent.name == "trainings" else folder.parent.name


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).isoformat(" ", "seconds")


def _touched(folder: Path) -> float:
    try:
        return (folder / "claim.json").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _born(pid: int) -> str:
    """Return when a process of this machine began, in clock ticks since boot; empty where it is gone, or a zombie.

    psutil adds the wall clock's time of boot, which moves when that clock is set: no name for a process.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]


@cache
def _kernel() -> str:
    """Containers of a host share its name and not its processes; and some machines are all called localhost."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux
        return ""


def _host() -> str:
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def _reached(folder: Path) -> str:
    checkpoint = folder / "checkpoint.h5"
    if not checkpoint.exists():
        return ""
    attributes = files.read_attributes(checkpoint)
    return f"epoch {attributes['epoch']} step {attributes['step']}"


def own_job() -> str:
    """Return the number of the job of a batch system that this process runs in; of an array, of its element."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array else os.environ.get("SLURM_JOB_ID", "")


def own_turn() -> int:
    """Return how often the job that this process runs in was begun again."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)
