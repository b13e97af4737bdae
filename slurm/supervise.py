"""Between a batch system and the work: passes signals on, tells an end from a pre-emption, asks for another turn.

Whoever submits a job, by submitit or by a plain script, this is what runs in it, as the batch process itself: SLURM's
warning (`--signal=B:USR1`) comes here alone and reaches the work as USR1, upon which that saves itself.

    status of the work           what it means                         then
    0, 1, 2 …                    done; failed for good                 end with it
    130 or 143, and told so      saved itself                          another turn
    130 or 143, not told so      stopped by a person                   end with it
    137, 139 … (a signal)        killed                                another turn

Another turn is asked for only where squeue does not say that SLURM has decided already: what is being cancelled stays
cancelled, what is pre-empted is requeued by SLURM itself.
"""

from __future__ import annotations

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
TRIES, PAUSE_SECONDS = 6, 10.0  # of a requeue: a controller that restarts answers again within a minute
ENDED_BY_SIGNAL = range(129, 193)


def supervise(command: Sequence[str], log: Path | None = None) -> int:
    """Run the work; its status. What it says goes to `log`, one for all its starts."""
    if log is not None:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(out, 1)
        os.dup2(out, 2)
    # a line in the log at every start, as later starts append to it
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
    # a session of its own: what SLURM or a person sends to this process does not reach the work by another way
    work = subprocess.Popen(command, start_new_session=True)
    if told:  # before there was a work to tell
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
    """Requeue the element this is, never the bare number of an array, which would requeue all of it."""
    job = own_job()
    if not job:  # no batch system here
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
