"""The number of jobs that a user may still submit. Every array element counts as a job.

SLURM keeps such limits in four places: the user's association with an account, the accounts above it (for all their
users together), the QOS of the job, and the QOS of its partition.
"""

import getpass
from collections.abc import Sequence

from slurm import queue
from sweep.errors import Refused
from sweep.experiment import Cluster

Row = dict[str, str]


def room(cluster: Cluster) -> int | None:
    """Return how many more jobs SLURM would accept from this user with these settings; None if there is no limit."""
    user = getpass.getuser()
    try:
        own = _kept(["assoc", f"user={user}"], "Account,MaxSubmitJobs,GrpSubmitJobs,DefaultQOS")
        account = cluster.account or next(
            (row["DefaultAccount"] for row in _kept(["user", user], "DefaultAccount")), ""
        )
        mine = next((row for row in own if row["Account"] == account), None)
        if mine is None:
            return None
        accounts = _kept(["assoc", "user="], "Account,ParentName,GrpSubmitJobs")
        columns = "Name,MaxSubmitJobsPerUser,MaxSubmitJobsPerAccount,GrpSubmitJobs"
        levels = {row["Name"]: row for row in _kept(["qos"], columns)}
    except Refused:  # accounting is off
        return None
    jobs = _rows(
        queue.output(["squeue", "--noheader", "--array", "--format=%u|%a|%q|%P"]), "user,account,qos,partition"
    )
    limits = [(mine[limit], _where(jobs, user=user, account=account)) for limit in ("MaxSubmitJobs", "GrpSubmitJobs")]
    for above in _upwards(account, accounts):
        below = [row["Account"] for row in accounts if above in _upwards(row["Account"], accounts)]
        limits.append((above["GrpSubmitJobs"], [job for job in jobs if job["account"] in below]))
    partition = queue.partition(cluster.partition)
    qos = cluster.qos or mine["DefaultQOS"] or "normal"
    for level, used in (
        (levels.get(qos), _where(jobs, qos=qos)),
        (levels.get(partition.get("QoS", "")), _where(jobs, partition=partition.get("PartitionName", ""))),
    ):
        if level:
            limits.append((level["MaxSubmitJobsPerUser"], _where(used, user=user)))
            limits.append((level["MaxSubmitJobsPerAccount"], _where(used, account=account)))
            limits.append((level["GrpSubmitJobs"], used))
    return min((max(0, int(limit) - len(used)) for limit, used in limits if limit.isdigit()), default=None)


def _where(jobs: Sequence[Row], **fields: str) -> list[Row]:
    return [job for job in jobs if all(job[name] == value for name, value in fields.items())]


def _upwards(account: str, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of an account and of those above it, up to the root."""
    named, out = {row["Account"]: row for row in rows}, list[Row]()
    while account in named and named[account] not in out:
        out.append(named[account])
        account = named[account]["ParentName"]
    return out


def _kept(words: Sequence[str], columns: str) -> list[Row]:
    """Return rows of SLURM's accounting database."""
    return _rows(queue.output(["sacctmgr", "--noheader", "--parsable2", "show", *words, f"format={columns}"]), columns)


def _rows(text: str, columns: str) -> list[Row]:
    return [dict(zip(columns.split(","), line.split("|"), strict=True)) for line in text.splitlines()]
