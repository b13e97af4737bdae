"""The options of sbatch that an experiment file may add, and those it may not because the chain of jobs needs them."""

from __future__ import annotations

import re
import shlex
from typing import Annotated

from sweep.experiment.forms import Form, Mistake

_GPUS = "cluster.gpu_type, cluster.gpus_per_node and cluster.gpus_per_cell instead"
REFUSED = {  # option: what to write instead
    "partition": "cluster.partition instead",
    "account": "cluster.account instead",
    "qos": "cluster.qos instead",
    "time": "cluster.time_limit and cluster.dense_time_limit instead",
    "mem": "cluster.memory_per_gpu instead",
    **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-task"), _GPUS),
    "cpus-per-task": "cluster.cpus_per_gpu instead",
    "signal": "cluster.warning_seconds instead",
    "array": "cluster.array_parallelism: the elements of an array are its trainings instead",
    "nodes": "cluster.nodes and cluster.gpus_per_cell: a job has one node instead",
    "job-name": "name: jobs are called after the experiment instead",
    "wrap": "cluster.setup and cluster.container instead",
    "dependency": "nothing: jobs wait for what they need",
    "kill-on-invalid-dep": "nothing: a job whose turn cannot come is cancelled",
    **dict.fromkeys(("requeue", "no-requeue"), "nothing: a task that was interrupted goes on in another turn"),
    **dict.fromkeys(("output", "error"), "nothing: each training has a log of its own, in slurm/logs of the results"),
    "open-mode": "nothing: a log goes on where it was",
    "parsable": "nothing: the answer of sbatch is read",
    "test-only": "nothing: lottery check asks SLURM and submits nothing",
    "wait": "nothing: lottery status shows what runs",
    **dict.fromkeys(("ntasks", "ntasks-per-node"), "nothing: a job is one process"),
    "clusters": "nothing: jobs are submitted to the cluster of this machine",
    **dict.fromkeys(("help", "usage", "version"), "nothing: jobs are submitted"),
}
_WRITTEN, _RIGHT = r"^--([a-z][a-z-]*)(=[^\x00-\x1f\x7f]+)?$", "--name or --name=value, as in --constraint=a100"
_OF_GPUS = "^--gres=(.*,)?(gres/)?gpu(:|,|$)"


def option(text: str) -> str:
    """Return an option of sbatch if an experiment may give it, else raise Mistake with what would be right.

    >>> option("--constraint=a100"), option("--mem-per-gpu=8G"), option("--time-min=5")
    ('--constraint=a100', '--mem-per-gpu=8G', '--time-min=5')
    >>> option("--dep=singleton")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    sweep...Mistake: received '--dep=singleton', expected nothing: jobs wait for what they need (--dependency)
    """
    try:
        one_word = len(shlex.split(text)) == 1
    except ValueError:  # an unclosed quotation mark
        one_word = False
    found = re.fullmatch(_WRITTEN, text)
    if not found or not one_word:
        raise Mistake(text, f"{_RIGHT}, with quotes around a value that has spaces")
    # sbatch accepts abbreviated names
    meant = found[1] if found[1] in REFUSED else next((full for full in REFUSED if full.startswith(found[1])), "")
    if found[1] == "gres" and re.search(_OF_GPUS, text):  # others, such as local disks, are asked for beside the GPUs
        raise Mistake(text, f"{_GPUS} (--gres)")
    if meant:
        raise Mistake(text, f"{REFUSED[meant]} (--{meant})")
    return text


_JSON = {"pattern": _WRITTEN, "not": {"pattern": f"^--({'|'.join(REFUSED)})(=|$)|{_OF_GPUS}"}}
Option = Annotated[str, Form(None, _RIGHT, _JSON, check=option, strict=True)]
