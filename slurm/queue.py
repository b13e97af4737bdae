"""The answers of SLURM's programs as data, one query for all jobs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sweep.errors import Refused

PATIENCE = 20.0  # seconds to wait for an answer
LIVE = {"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED", "STOPPED",
        "RESIZING", "SIGNALING", "STAGE_OUT", "SPECIAL_EXIT"}  # fmt: skip


class Silent(Exception):
    """SLURM does not answer."""


@dataclass(frozen=True)
class Entry:
    """A job or an array element as SLURM sees it."""

    job: str  # 17, or 17_4 for an array element
    state: str  # PENDING, RUNNING, COMPLETED, …
    reason: str = ""  # why it waits
    node: str = ""
    script: str = ""  # path of the batch script, if squeue shows it

    @property
    def live(self) -> bool:
        return self.state in LIVE


def listing() -> list[Entry]:
    """Return every job and array element that squeue shows, of all users: a results folder may have two owners.

    Jobs that ended within the last minutes are included.
    """
    shown = output(["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%r|%N|%o"])
    return [one for line in shown.splitlines() for one in _elements(*line.split("|", 4))]


def ask(elements: Iterable[str], listed: Iterable[Entry] | None = None) -> dict[str, Entry]:
    """Return what SLURM knows about these jobs and array elements, by id.

    squeue is right about what is live. Accounting lags behind and shows a requeued task as failed for seconds, so sacct
    is asked, once for all, only about what squeue has forgotten. `listed`: the answer of squeue, if known.
    """
    wanted = set(elements)
    if not wanted:
        return {}
    seen = {one.job: one for one in (listing() if listed is None else listed) if one.job in wanted}
    forgotten = {parent_of(job) for job in wanted - set(seen)}
    if forgotten:
        try:
            ended = output(["sacct", "--noheader", "--parsable2", "--allocations", "--allusers",
                             "--format=JobID,State,NodeList", f"--jobs={','.join(sorted(forgotten))}"])  # fmt: skip
        except Refused:  # accounting is off: jobs that squeue has forgotten have ended
            return seen
        for job, state, node in (line.split("|") for line in ended.splitlines()):
            for one in _elements(job, state.split()[0], "", node):
                if one.job in wanted and not one.live:  # a job that squeue has forgotten is not live
                    seen.setdefault(one.job, one)
    return seen


def under(folder: Path, listed: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Return live jobs whose batch script is under a folder, as their elements by job id."""
    found: dict[str, list[Entry]] = {}
    for one in listed:
        if one.live and one.script.startswith(f"{folder}/"):
            found.setdefault(parent_of(one.job), []).append(one)
    return found


def cancel(jobs: Iterable[str]) -> None:
    if wanted := sorted(jobs):
        output(["scancel", *wanted])


def update(job: str, change: str) -> None:
    """Change a waiting job. SLURM lets its owner lower a time limit, not raise it."""
    output(["scontrol", "update", f"JobId={job}", change])


def max_array_size() -> int:
    """Return SLURM's MaxArraySize; indices of an array must be below it."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", output(["scontrol", "show", "config"]), re.MULTILINE)
    if not found:
        raise Refused("scontrol show config: no MaxArraySize in its answer")
    return int(found[1])


def default_time(name: str) -> str:
    """Return the time limit of a job that asks for none in this partition ("": the default one); 0: no limit."""
    fields = partition(name)
    found = fields.get("DefaultTime", "NONE")
    found = fields.get("MaxTime", "UNLIMITED") if found == "NONE" else found
    return "0" if found == "UNLIMITED" else found


@cache
def partition(name: str) -> dict[str, str]:
    """Return SLURM's description of a partition ("": the default one); {} if there is no such partition."""
    try:  # of several partitions, separated by commas, take the first
        shown = output(["scontrol", "--oneliner", "show", "partition", *([name.partition(",")[0]] if name else [])])
    except Refused:  # sbatch's own message is better
        return {}
    for line in shown.splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split())
        if name or fields.get("Default") == "YES":
            return fields
    raise Refused("cluster.partition: this SLURM has no default partition; expected the name of one")


def output(command: Sequence[str]) -> str:
    """Return the output of a SLURM program; raise Refused if it fails, Silent if SLURM does not answer."""
    try:
        with without_own_job():
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except FileNotFoundError:
        raise Refused(f"{command[0]}: no such program here; expected a machine that can submit to SLURM") from None
    except subprocess.TimeoutExpired:
        raise Silent(f"{command[0]} did not answer within {PATIENCE:.0f} s") from None
    if done.returncode == 0:
        return done.stdout
    raise refusal(command[0], (done.stderr or done.stdout) or f"exit status {done.returncode}")


@contextmanager
def without_own_job() -> Iterator[None]:
    """Hide the own job's SLURM_… variables: else they are defaults of submitted jobs, and confuse submitit."""
    own = {name: value for name, value in os.environ.items() if name.startswith("SLURM_") and name != "SLURM_CONF"}
    for name in own:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(own)


def refusal(program: str, text: str) -> Exception:
    """Return the exception for the message of a failed SLURM program: Silent if SLURM did not answer, else Refused."""
    said = " ".join(text.replace(f"{program}: error: ", "").replace(f"{program}: ", "").split())
    if re.search(r"Unable to contact|Connection refused|Connection timed out|Socket timed out|not responding", said):
        return Silent(f"{program}: {said}")
    if re.search(r"resolve_ctls|configuration source", said):  # installed, but no slurm.conf
        return Refused(f"{program}: no cluster is configured on this machine; expected a login node")
    return Refused(f"{program}: {said}")


def parent_of(job: str) -> str:
    """Return the id of the job that an array element belongs to."""
    return job.partition("_")[0]


def _elements(job: str, state: str, reason: str, node: str, script: str = "") -> list[Entry]:
    """Return the entries of a line of squeue, which may stand for many waiting elements: 17_[0-2,5%4].

    >>> [one.job for one in _elements("17_[0-2,5%4]", "PENDING", "", "")]
    ['17_0', '17_1', '17_2', '17_5']
    """
    parent, _, rest = job.partition("_")
    if not rest.startswith("["):
        return [Entry(job, state, reason, node, script)]
    out = []
    for part in rest.strip("[]").partition("%")[0].split(","):
        low, _, high = part.partition("-")
        out += [Entry(f"{parent}_{i}", state, reason, node, script) for i in range(int(low), int(high or low) + 1)]
    return out
