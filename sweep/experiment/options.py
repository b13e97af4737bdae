"""Options of sbatch that an experiment file may add, and those on which the chain of jobs rests, which it may not."""

from __future__ import annotations

import re
import shlex

_FIELDS = {
    "partition": "cluster.partition",
    "account": "cluster.account",
    "qos": "cluster.qos",
    "time": "cluster.time_limit and cluster.dense_time_limit",
    "mem": "cluster.memory_per_gpu",
    "cpus-per-task": "cluster.cpus_per_gpu",
    "signal": "cluster.warning_seconds",
    "array": "cluster.array_parallelism: the elements of an array are its trainings",
    "nodes": "cluster.nodes and cluster.gpus_per_cell: a job has one node",
    "job-name": "name: jobs are called after the experiment",
    "wrap": "cluster.setup and cluster.container",
}
_NOT_FOR_YOU = {
    "dependency": "jobs wait for what they need",
    "kill-on-invalid-dep": "a job whose turn cannot come is cancelled",
    "requeue": "a task that was interrupted goes on in another turn",
    "no-requeue": "a task that was interrupted goes on in another turn",
    "output": "each training has a log of its own, in slurm/logs of the results",
    "error": "each training has a log of its own, in slurm/logs of the results",
    "open-mode": "a log goes on where it was",
    "parsable": "the answer of sbatch is read",
    "test-only": "lottery check asks SLURM and submits nothing",
    "wait": "lottery status shows what runs",
    "ntasks": "a job is one process",
    "ntasks-per-node": "a job is one process",
    "clusters": "jobs are submitted to the cluster of this machine",
    "help": "jobs are submitted",
    "usage": "jobs are submitted",
    "version": "jobs are submitted",
}
REFUSED = {name: f"{field} instead" for name, field in _FIELDS.items()} | {
    name: f"nothing: {why}" for name, why in _NOT_FOR_YOU.items()
}


def right_instead(option: str) -> str:
    """Return what would be right instead of an option of sbatch, or nothing if the option may be given.

    >>> right_instead("--constraint=a100"), right_instead("--mem-per-gpu=8G"), right_instead("--time-min=5")
    ('', '', '')
    >>> right_instead("--dep=singleton")
    'nothing: jobs wait for what they need (--dependency)'
    """
    try:
        one_word = len(shlex.split(option)) == 1
    except ValueError:  # a quotation that is not closed
        one_word = False
    found = re.fullmatch(r"--([a-z][a-z-]*)(=.+)?", option)
    if not found or not one_word:
        return "--name or --name=value, as in --constraint=a100, with quotes around a value that has spaces"
    name = found[1]
    # sbatch takes the beginning of a name for the name
    meant = name if name in REFUSED else next((full for full in REFUSED if full.startswith(name)), "")
    return f"{REFUSED[meant]} (--{meant})" if meant else ""
