"""What SLURM says: one batched question at a time, as data."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sweep.errors import Refused

PATIENCE = 20.0  # seconds a cluster gets to answer
LIVE = {"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED", "STOPPED",
        "RESIZING", "SIGNALING", "STAGE_OUT", "SPECIAL_EXIT"}  # fmt: skip


class Silent(Exception):
    """The cluster does not answer."""


@dataclass(frozen=True)
class Seen:
    """A job or an array element as SLURM sees it."""

    job: str  # 17 or, of an array, 17_4
    state: str  # PENDING, RUNNING, COMPLETED, …
    reason: str = ""  # why it waits
    node: str = ""

    @property
    def live(self) -> bool:
        return self.state in LIVE


def ask(elements: Iterable[str]) -> dict[str, Seen]:
    """Those of the jobs and array elements that SLURM knows of.

    squeue is the truth about what lives, whoever submitted it: a results folder may have two owners. Accounting lags
    behind it and calls a requeued task failed for seconds, so it is asked, once for all, only about what squeue has
    forgotten.
    """
    wanted = set(elements)
    if not wanted:
        return {}
    listed = _output(["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%r|%N"])
    seen = {
        one.job: one
        for job, state, reason, node in (line.split("|") for line in listed.splitlines())
        for one in _elements(job, state, reason, node)
        if one.job in wanted
    }
    forgotten = {_parent(job) for job in wanted - set(seen)}
    if forgotten:
        try:
            ended = _output(["sacct", "--noheader", "--parsable2", "--allocations", "--allusers",
                             "--format=JobID,State,NodeList", f"--jobs={','.join(sorted(forgotten))}"])  # fmt: skip
        except Refused:  # accounting is off: what squeue has forgotten has ended
            return seen
        for job, state, node in (line.split("|") for line in ended.splitlines()):
            for one in _elements(job, state.split()[0], "", node):
                if one.job in wanted and not one.live:  # what squeue has forgotten does not live
                    seen.setdefault(one.job, one)
    return seen


def test(script: str, options: Sequence[str]) -> None:
    """Whether SLURM would take the job; nothing is submitted."""
    _output(["sbatch", "--test-only", *options, script])


def cancel(jobs: Iterable[str]) -> None:
    if wanted := sorted(jobs):
        _output(["scancel", *wanted])


def set_time_limit(job: str, limit: str) -> None:
    """Of a job that waits. SLURM lets its owner lower a limit, not raise it."""
    _output(["scontrol", "update", f"JobId={job}", f"TimeLimit={limit}"])


def set_dependency(job: str, clause: str) -> None:
    """Of a job that waits."""
    _output(["scontrol", "update", f"JobId={job}", f"Dependency={clause}"])


def max_array_size() -> int:
    """Indices of an array lie under it."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", _output(["scontrol", "show", "config"]), re.MULTILINE)
    if not found:
        raise Refused("scontrol show config: no MaxArraySize in its answer")
    return int(found[1])


@cache
def default_time(partition: str) -> str:
    """The time limit of a job of this partition (of the default one) that asks for none; 0 where there is none."""
    try:
        shown = _output(["scontrol", "--oneliner", "show", "partition", *([partition] if partition else [])])
    except Refused:  # no such partition: sbatch says so better
        return "0"
    for line in shown.splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split())
        if partition or fields.get("Default") == "YES":
            found = fields.get("DefaultTime", "NONE")
            found = fields.get("MaxTime", "UNLIMITED") if found == "NONE" else found
            return "0" if found == "UNLIMITED" else found
    raise Refused("cluster.partition: this SLURM has no default partition; expected the name of one")


def submit_limit(qos: str) -> int | None:
    """How many jobs this user may have in the queue; None where no limit is kept."""
    questions = [["assoc", f"user={_user()}", "format=MaxSubmitJobs"]]
    questions += [["qos", f"name={qos}", "format=MaxSubmitJobsPerUser"]] if qos else []
    try:
        rows = "\n".join(_output(["sacctmgr", "--noheader", "--parsable2", "show", *words]) for words in questions)
    except Refused:  # accounting is off
        return None
    return min((int(row) for row in rows.split() if row.isdigit()), default=None)


def waiting_or_running() -> int:
    """This user's jobs in the queue, every array element counted."""
    return len(_output(["squeue", "--me", "--noheader", "--array", "--format=%i"]).splitlines())


def of_folder(folder: Path) -> set[str]:
    """Jobs in the queue, whoever submitted them, whose script lies under it; arrays as a whole."""
    listed = _output(["squeue", "--noheader", "--format=%F|%o"])
    pairs = (line.partition("|") for line in listed.splitlines())
    return {job for job, _, script in pairs if script.startswith(f"{folder}/")}


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _output(command: Sequence[str]) -> str:
    # inside a job, its own SLURM_… would become defaults of the jobs it submits
    clean = {name: value for name, value in os.environ.items() if name == "SLURM_CONF" or not name.startswith("SLURM_")}
    try:
        done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except FileNotFoundError:
        raise Refused(f"{command[0]}: no such program here; expected a machine that can submit to SLURM") from None
    except subprocess.TimeoutExpired:
        raise Silent(f"{command[0]} did not answer within {PATIENCE:.0f} s") from None
    if done.returncode == 0:
        return done.stdout
    raise refusal(command[0], (done.stderr or done.stdout) or f"exit status {done.returncode}")


def refusal(program: str, text: str) -> Exception:
    """What a program of SLURM that failed has said: that nobody answers, or that it will not."""
    said = " ".join(text.replace(f"{program}: error: ", "").replace(f"{program}: ", "").split())
    if re.search(r"Unable to contact|Connection refused|Connection timed out|Socket timed out|not responding", said):
        return Silent(f"{program}: {said}")
    return Refused(f"{program}: {said}")


def _parent(job: str) -> str:
    return job.partition("_")[0]


def _elements(job: str, state: str, reason: str, node: str) -> list[Seen]:
    """One line may stand for many waiting elements: 17_[0-2,5%4].

    >>> [one.job for one in _elements("17_[0-2,5%4]", "PENDING", "", "")]
    ['17_0', '17_1', '17_2', '17_5']
    """
    parent, _, rest = job.partition("_")
    if not rest.startswith("["):
        return [Seen(job, state, reason, node)]
    out = []
    for part in rest.strip("[]").partition("%")[0].split(","):
        low, _, high = part.partition("-")
        out += [Seen(f"{parent}_{i}", state, reason, node) for i in range(int(low), int(high or low) + 1)]
    return out
