"""The supervisor between SLURM and the work: passes signals on, distinguishes the end from pre-emption, requeues.

It is the batch process of every job, whether submitted by submitit or as a plain script. SLURM's warning
(`--signal=B:USR1`) comes to it alone; it passes USR1 on to the work, which then saves itself.

    status of the work           what it means                         then
    0, 1, 2 …                    done; failed for good                 end with it
    130 or 143, and told so      saved itself                          another turn
    130 or 143, not told so      stopped by a person                   end with it
    137, 139 … (a signal)        killed                                another turn

"Told so" means that a signal was passed on. It requeues only if squeue does not show that SLURM has decided already: a
job that is being cancelled stays cancelled, and SLURM itself requeues a pre-empted one.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import FrameType

from slurm import queue
from sweep.errors import Refused
from sweep.graph.claim import own_job, own_turn

SAVE, STOP = signal.SIGUSR1, signal.SIGTERM
TRIES, PAUSE_SECONDS = 6, 10.0  # for a requeue: a controller that restarts answers within a minute
ENDED_BY_SIGNAL = range(129, 193)


def supervise(command: Sequence[str], log: Path | None = None) -> int:
    """Run the work and return its exit status. Its output is appended to `log`, one file for all its starts."""
    if log is not None:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(out, 1)
        os.dup2(out, 2)
    # a line in the log at every start, because later starts append to it
    at, node = datetime.now().astimezone().isoformat(timespec="seconds"), os.environ.get("SLURMD_NODENAME", "?")
    print(f"{at} job {own_job()} on {node}, start {own_turn() + 1}", flush=True)
    told: list[int] = []
    work: subprocess.Popen[bytes] | None = None

    def tell(number: int, frame: FrameType | None) -> None:
        told.append(number)
        if work is not None:
            work.send_signal(STOP if number == STOP else SAVE)

    for number in (SAVE, signal.SIGUSR2, STOP):
        signal.signal(number, tell)
    signal.signal(signal.SIGCONT, signal.SIG_DFL)
    # a session of its own, so that signals to this process's group do not reach the work too
    work = subprocess.Popen(command, start_new_session=True)
    if told:  # before the work was started
        work.send_signal(STOP if STOP in told else SAVE)
    status = work.wait()
    status = 128 - status if status < 0 else status
    if status == 128 + SAVE and told:
        print("warned while it could not save itself (it starts, evaluates or is no training): its time limit less "
              "cluster.warning_seconds is too short for that", file=sys.stderr, flush=True)  # fmt: skip
    if status in ENDED_BY_SIGNAL and (told or status not in (130, 143)):
        ask_for_another_turn()
    return status


def ask_for_another_turn() -> None:
    """Requeue this job or array element, never the bare id of an array, which would requeue all of it."""
    job = own_job()
    if not job:  # not in a SLURM job
        return
    for left in reversed(range(TRIES)):
        state = reason = ""
        with suppress(Refused, queue.Silent):
            shown = queue.output(["squeue", "--noheader", f"--jobs={job}", "--format=%T %r"])
            state, _, reason = shown.strip().partition(" ")
        if state and state != "RUNNING" and reason != "TimeLimit":
            return  # being cancelled, requeued or pre-empted
        asked = subprocess.run(["scontrol", "requeue", job], check=False)
        if asked.returncode == 0:
            return
        if left:
            time.sleep(PAUSE_SECONDS)
    print(f"job {job}: SLURM refuses another turn; lottery retry submits it again", file=sys.stderr, flush=True)
