"""Claims: which process trains a task now, and how often it was started (`claim.json` in the training's folder).

Two experiments may ask for the same training at the same time: the second finds a claim that is alive and leaves the
training alone. On the same machine a claim is alive while its process is; on another one, while its file is touched.

A cluster can lose sight of a node whose processes live on, and start the same task elsewhere. That start is a later
turn of the same job and owns the task from then on; the earlier process notices before it writes anything, and ends.
A task that is started again and again without progress counts as failed.
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
STALE_SECONDS = 120.0  # since the last touch; file systems of clusters may show a change a minute late


@dataclass(frozen=True)
class Claim:
    """The latest start of a task."""

    owner: str  # unique to this start
    starts: int  # number of starts in all
    idle_starts: int  # number of starts since the last progress
    reached: str  # epoch and step of the checkpoint at this start
    began: float  # seconds since 1970
    host: str
    pid: int
    job: str = ""  # job of the batch system, if there is one
    turn: int = 0  # how often the job was requeued
    kernel: str = ""  # boot and pid namespace in which `pid` is valid
    born: str = ""  # start time of the process in clock ticks, because pids are reused


def take(folder: Path, restarts: int | None = None) -> Claim:
    """Claim the task in `folder`; raise Busy if another process has it, Stuck after too many idle starts."""
    before = read(folder)
    if before is not None and alive_elsewhere(folder, before):
        raise Busy(f"{_named(folder)}: process {before.pid} on {before.host} trains it since {_when(before.began)}, "
                   f"last sign of life {_when(_touched(folder))}")  # fmt: skip
    reached = _reached(folder)
    idle = before.idle_starts if before and before.reached == reached else 0
    claim = Claim(
        owner=uuid.uuid4().hex,
        starts=before.starts + 1 if before else 1,
        idle_starts=idle + 1,
        reached=reached,
        began=time.time(),
        host=_host(),
        pid=os.getpid(),
        job=own_job(),
        turn=own_turn(),
        kernel=_kernel(),
        born=_born(os.getpid()),
    )
    if restarts is not None and before and idle > restarts:
        raise Stuck(
            f"begun {idle} times without getting past {reached or 'its beginning'}, last on {before.host}"
            f"{f' in job {before.job}' if before.job else ''}; its log may say why"
        )
    with alone(folder / ".claim.lock"):  # of two processes that find no claim, or the same dead one, only one gets it
        now = read(folder)
        if now and not (before and now.owner == before.owner):
            raise Busy(f"{_named(folder)}: process {now.pid} on {now.host} began it at this moment")
        files.write_json(folder / "claim.json", claim)
    return claim


def read(folder: Path) -> Claim | None:
    return files.read(folder / "claim.json", Claim)


def forgive(folder: Path) -> None:
    """Set the count of starts without progress to 0, and keep the time of the last touch."""
    claim, path = read(folder), folder / "claim.json"
    if claim:
        touched = path.stat().st_mtime
        files.write_json(path, replace(claim, idle_starts=0))
        os.utime(path, (touched, touched))


def check(folder: Path, claim: Claim) -> None:
    """Raise Superseded if another process has claimed the training since."""
    now = read(folder)
    if now is None or now.owner != claim.owner:
        where = f" on {now.host}" if now else ""
        raise Superseded(f"{_named(folder)}: begun again elsewhere{where}; this process leaves it alone")


def alive_elsewhere(folder: Path, claim: Claim) -> bool:
    """Whether another process trains the task now. An earlier turn of this process's own job does not count."""
    if claim.job and claim.job == own_job() and own_turn() > claim.turn:
        return False
    here = works(folder, claim)
    if here is not None:
        return here and claim.pid != os.getpid()
    return _moves(folder)


_STILL: dict[Path, tuple[float, float]] = {}  # claims dated in the future: their time, and when first seen


def _moves(folder: Path) -> bool:
    """Whether a claim was touched within STALE_SECONDS.

    If its time is in the future, another machine's clock is wrong. It then counts as alive until this process has seen
    it unchanged for STALE_SECONDS.
    """
    touched = _touched(folder)
    if touched - time.time() < STALE_SECONDS:
        return time.time() - touched < STALE_SECONDS
    if _STILL.get(folder, (0.0, 0.0))[0] != touched:
        _STILL[folder] = touched, time.monotonic()
    return time.monotonic() - _STILL[folder][1] < STALE_SECONDS


def answers(folder: Path, claim: Claim) -> bool:
    """Whether a claim's process is seen to work or, if it cannot be seen from here, has touched the claim just now."""
    here = works(folder, claim)
    return here if here is not None else abs(time.time() - _touched(folder)) < STALE_SECONDS


@contextmanager
def beating(folder: Path, claim: Claim) -> Iterator[None]:
    """Touch the claim every BEAT_SECONDS while the body runs; release it at the end."""
    over = threading.Event()

    def touch(times: tuple[int, int] | None = None) -> None:
        """Set the time of the claim, unless another process owns it by now."""
        with suppress(OSError, Superseded):  # the file system may fail for a moment
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
    """Whether the claim's process still works on the task; None if that cannot be known on this machine."""
    if not _touched(folder):  # the claim was released
        return False
    if (claim.host, claim.kernel) != (_host(), _kernel()):
        return None
    return bool(claim.born) and _born(claim.pid) == claim.born


def _named(folder: Path) -> str:
    """Return the name of the training in `folder`, which may be the `again` folder inside its own."""
    return folder.name if folder.parent.name == "trainings" else folder.parent.name


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).isoformat(" ", "seconds")


def _touched(folder: Path) -> float:
    try:
        return (folder / "claim.json").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _born(pid: int) -> str:
    """Return the start time of a process on this machine, in clock ticks since boot; "" if it is gone or a zombie.

    psutil adds the wall-clock time of boot, which changes when the clock is set, so it does not identify a process.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]


@cache
def _kernel() -> str:
    """Return boot id and pid namespace: containers share a host name, and many hosts are called `localhost`."""
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
    """Return the id of the SLURM job, or of the array element, that this process runs in, or ""."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array else os.environ.get("SLURM_JOB_ID", "")


def own_turn() -> int:
    """Return how often the SLURM job of this process was requeued."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)
