"""The jobs of a sweep as data and as scripts: pure functions of the experiment, its folder and what is missing.

A chain of jobs: an array for every stage of the graph (dense runs; tickets and controls; …), the masks between the
first two, the report at the end. `lottery plan` shows, `lottery sbatch` writes and `lottery sweep --on slurm` submits
(slurm/launch.py) the same jobs. Scripts can be read, edited and submitted by hand; the script of an array lists its
trainings by name, so that queued jobs keep their meaning when the experiment grows.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from sweep.errors import Refused
from sweep.experiment import Cluster, Experiment
from sweep.experiment.checks import seconds_of
from sweep.files import write_text
from sweep.graph.training import Task
from sweep.training.schedule import check_devices, most_devices

MAX_ARRAY_SIZE = 1001  # SLURM's default: indices 0 to 1000
SINGLE = ("masks", "report", "rest")  # jobs that are not arrays of trainings
OTHERS = ("tune", "prepare", "summary")  # not part of a sweep; their array elements are numbers

Waits = tuple[tuple[str, str], ...]  # (afterok, afterany or aftercorr, name of an earlier job)


@dataclass(frozen=True)
class Job:
    """One job of the chain: its options for SLURM, and what it does."""

    name: str  # name of its script, without .sh
    part: str  # dense, initial (pruned at initialization), cells, generation2 …, or one of SINGLE or OTHERS
    waits: Waits = ()
    options: dict[str, str] = field(default_factory=dict)  # options of sbatch; a switch has no value
    setup: tuple[str, ...] = ()  # shell lines to run first
    command: str = ""  # shell command; the variable `task` holds the trainings of an array element
    log: Path = Path()  # %a stands for the number of an array element
    elements: tuple[tuple[str, ...], ...] = ()  # names of the trainings of each array element
    at_a_time: int = 0  # elements that may run at the same time; 0: all

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return the names of all trainings of an array."""
        return tuple(name for element in self.elements for name in element)

    @property
    def indices(self) -> tuple[int, ...]:
        """Return the array element of each of `tasks`."""
        return tuple(index for index, element in enumerate(self.elements) for _ in element)

    @property
    def text(self) -> str:
        """Return the job as a script: a few lines around `lottery supervise`."""
        pairs = (f"--{name}={shlex.quote(value)}" if value else f"--{name}" for name, value in self.options.items())
        lines = ["#!/bin/bash", *(f"#SBATCH {pair}" for pair in pairs)]
        lines.append("trap '' USR1 USR2  # a warning before the work stands would end the job")
        if self.elements and self.part not in OTHERS:
            # a log is named by the (first) training, so that a later job of the training appends to it
            several = len(self.tasks) > len(self.elements)
            tasks = [f'    "{" ".join(element)}"' if several else f"    {element[0]}" for element in self.elements]
            first = "${task%% *}" if several else "$task"
            lines += ["tasks=(", *tasks, ")", 'task="${tasks[$SLURM_ARRAY_TASK_ID]}"',
                      f'exec >> {_quoted(self.log.parent)}/"{first}.out" 2>&1']  # fmt: skip
        return "\n".join([*lines, "set -eo pipefail", *self.setup, f"exec lottery supervise {self.command}"]) + "\n"


def elements_in(script: str) -> tuple[tuple[str, ...], ...]:
    """Return the trainings that an array's script lists, by array element; () if it is not such a script.

    >>> elements_in("tasks=(\\n    dense-seed0-1a\\n    'a b'\\n)\\ntask=…")
    (('dense-seed0-1a',), ('a', 'b'))
    """
    _, found, rest = script.partition("tasks=(\n")
    lines = rest.partition("\n)")[0].splitlines() if found else []
    return tuple(tuple(shlex.split(line)[0].split()) for line in lines)


def write_scripts(folder: Path, jobs: Iterable[Job]) -> list[Path]:
    """Write the scripts and create the folder of their logs, without which SLURM fails silently; return the paths."""
    paths = []
    for job in jobs:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        paths.append(folder / "slurm" / f"{job.name}.sh")
        write_text(paths[-1], job.text)
    return paths


def commands(folder: Path, jobs: Sequence[Job]) -> str:
    """Return the shell lines that submit the scripts by hand, each waiting for those before."""
    names = {job.name: job.name.replace("-", "_") for job in jobs}
    lines = []
    for job in jobs:
        after = clause([(how, [f"${names[name]}"]) for how, name in job.waits if name in names])
        # a job whose dependency can never be met is cancelled
        waiting = [f"--dependency={after}", "--kill-on-invalid-dep=yes"] if after else []
        words = ["sbatch --parsable", *waiting, _quoted(folder / "slurm" / f"{job.name}.sh")]
        lines.append(f"{names[job.name]}=$({' '.join(words)})")
    return "\n".join(lines)


def clause(clauses: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return the value of sbatch's --dependency.

    >>> clause([("afterok", ["7"]), ("afterany", ["8", "9"]), ("afterany", [])])
    'afterok:7,afterany:8:9'
    """
    return ",".join(f"{how}:{':'.join(ids)}" for how, ids in clauses if ids)


def logs_of(pool: Path) -> Path:
    """Return the folder of logs in the pool: a training has one log, whichever experiment submitted it."""
    return pool / "slurm" / "logs"


# The chain ----------------------------------------------------------------------------------------------------------


def chain(
    experiment: Experiment,
    folder: Path,
    missing: Sequence[Task],
    masks: bool = True,
    max_array_size: int = MAX_ARRAY_SIZE,
    room: int | None = None,
) -> list[Job]:
    """Return the jobs of a sweep in order.

    `masks`: whether masks must be made. `room`: jobs that the user may still submit; if it is too small for all
    trainings, the last job submits the rest.
    """
    now = missing if room is None else missing[: max(1, room - masks - 1)]
    # afterany: if one seed of several failed, the others continue; if all failed, masks fail and tickets are cancelled
    making = [_single(experiment, folder, "masks", (("afterany", "dense"),))] if masks else []
    jobs: list[Job] = []
    for (generation, _), group in groupby(sorted(now, key=_place), _place):
        trainings, arrays = list(group), list[Job]()
        if generation:
            jobs, making = [*jobs, *making], []
        size = max_array_size * carried(experiment, trainings[0])
        for number, start in enumerate(range(0, len(trainings), size), 1):
            part = trainings[start : start + size]
            waits = _waits(part, jobs, masks) if generation else ()
            # each of several arrays waits for the one before, so that no more trainings run at a time than asked for
            waits += (("afterany", arrays[-1].name),) if arrays else ()
            arrays.append(_array(experiment, folder, part, number, waits))
        jobs += arrays
    jobs += making  # if only dense runs are to be trained
    trained = [job.name for job in jobs if job.tasks]
    waits = (("afterany", trained[-1] if trained else "cells"), ("afterany", "masks"))
    waits += tuple(("afterany", name) for name in trained if name.startswith("initial"))
    return [*jobs, _single(experiment, folder, "report" if len(now) == len(missing) else "rest", waits)]


def _place(training: Task) -> tuple[int, bool]:
    """Return a task's place in the chain: its stage; in stage 0, dense runs come before pruning at initialization."""
    return training.generation, training.generation == 0 and not training.dense


def _waits(part: Sequence[Task], before: Sequence[Job], masks: bool) -> Waits:
    """Return what a part of a stage waits for: the masks, and the arrays with the trainings it needs.

    If every element needs only its own predecessor, it waits element by element (aftercorr).
    """
    needed = {need.name for training in part for need in training.needs}
    holding = [job for job in before if needed & set(job.tasks) and not (masks and job.part == "dense")]
    if part[0].generation > 1 and len(holding) == 1:
        stage = holding[0]  # the one before
        own = [tuple(need.name for need in one.needs if need.generation == one.generation - 1) for one in part]
        if len(stage.tasks) == len(stage.elements) and own == list(stage.elements[: len(own)]):
            return (("aftercorr", stage.name),)
    first = (("afterok", "masks"),) if part[0].generation == 1 else ()
    return (*first, *(("afterany", job.name) for job in holding))


def _single(experiment: Experiment, folder: Path, part: str, waits: Waits) -> Job:
    """Return the job of masks, report or rest; the masks get GPUs if they compile for the tickets."""
    gpus = gpus_of(experiment, cells=True) if part == "masks" and _warms_up(experiment) else 0
    return _job(experiment, folder, part, command_of(experiment, folder, part), waits, gpus=gpus)


def _array(experiment: Experiment, folder: Path, part: Sequence[Task], number: int, waits: Waits) -> Job:
    """Return an array of trainings, the longest first, with as many at a time as the nodes have GPUs for."""
    cluster, generation, dense = experiment.cluster, part[0].generation, part[0].kind == "dense"
    base = "dense" if dense else ("initial", "cells")[generation] if generation < 2 else f"generation{generation}"
    count = -(-len(part) // carried(experiment, part[0]))
    word = '"$task"' if count == len(part) else "$task"  # several names must be several words
    return _job(
        experiment, folder, base, command_of(experiment, folder, word), waits,
        name=base if number == 1 else f"{base}-{number}",
        gpus=gpus_of(experiment, cells=not dense),
        limit=cluster.dense_time_limit if dense else element_limit(cluster),
        elements=[[training.name for training in part[i::count]] for i in range(count)],  # long and short ones in each
        at_a_time=0 if dense else together(cluster),
    )  # fmt: skip


def tuning(experiment: Experiment, folder: Path, trials: Sequence[int]) -> Job:
    """Return an array with one element per trial of a search, each with the GPUs of a dense run."""
    cluster = experiment.cluster
    command = f'{_lottery(cluster)} tune {_quoted(folder)} --index "$SLURM_ARRAY_TASK_ID"'
    return _job(experiment, folder, "tune", command, gpus=cluster.gpus_per_node, limit=cluster.dense_time_limit,
                elements=[[str(trial)] for trial in trials], at_a_time=cluster.nodes)  # fmt: skip


def preparing(cluster: Cluster, folder: Path, words: Sequence[str], parts: int, strict: bool) -> tuple[Job, Job]:
    """Return an array that shares the preparation of shards, and a job after it that finishes and reports."""
    experiment = Experiment(name="data", cluster=cluster)
    command, jobs = f"{_lottery(cluster)} {shlex.join(words)}", '--jobs "$SLURM_CPUS_PER_TASK"'
    mine = f'{command} --part "$SLURM_ARRAY_TASK_ID/{parts}" {jobs}'
    finish = f"{command} {jobs}{' --strict' if strict else ''}"
    return (
        _job(experiment, folder, "prepare", mine, limit=cluster.time_limit, elements=[[str(i)] for i in range(parts)]),
        _job(experiment, folder, "summary", finish, (("afterany", "prepare"),)),
    )


def _job(
    experiment: Experiment, folder: Path, part: str, command: str, waits: Waits = (), *, name: str = "", gpus: int = 0,
    limit: str = "", elements: Sequence[Sequence[str]] = (), at_a_time: int = 0,
) -> Job:  # fmt: skip
    """Return a job with all its options for SLURM."""
    cluster = experiment.cluster
    logs, log = logs_of(folder.parent), f"{folder.name}-{part}.out"
    if part in ("prepare", "summary"):  # logs in the data set's own folder
        logs, log = logs_of(folder), f"{part}.out"
    if {"\\", "\n"} & set(str(logs / log)):  # % is doubled below, but a backslash would stop SLURM's expansion
        raise Refused(f"{logs}: SLURM takes no backslash and no line break in the name of a log; move the results")
    numbers: Sequence[int] = range(len(elements))
    if elements and part in OTHERS:
        numbers, log = [int(element[0]) for element in elements], log.replace(".out", "-%a.out")
    written = (shlex.split(option)[0].removeprefix("--").partition("=") for option in cluster.options)
    more = {option: value for option, _, value in written}
    gpu = ":".join(filter(None, ("gpu", cluster.gpu_type, str(gpus)))) if gpus else ""
    asked = {
        "job-name": f"{experiment.name}-{part}",
        "partition": cluster.partition if gpus else cluster.cpu_partition or cluster.partition,
        "account": cluster.account,
        "qos": cluster.qos,
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": str(cluster.cpus_per_gpu * max(gpus, 1)),
        "gres": ",".join(filter(None, (gpu, more.pop("gres", "")))),
        "mem": _times(cluster.memory_per_gpu, gpus) if gpus else "",
        "time": limit,
        "array": ranges(numbers) + (f"%{at_a_time}" if at_a_time else "") if elements else "",
    }
    options = {name: value for name, value in asked.items() if value} | {
        "signal": f"B:USR1@{cluster.warning_seconds}",
        "requeue": "",
        "open-mode": "append",  # else a requeued task truncates its log
        "output": f"{str(logs).replace('%', '%%')}/{log}",
        **more,
    }
    return Job(name or part, part, waits, options, cluster.setup, command, logs / log, tuple(map(tuple, elements)),
               at_a_time)  # fmt: skip


def command_of(experiment: Experiment, folder: Path, name: str) -> str:
    """Return the shell command of a job: train the tasks `name`, make masks, write the report, or submit the rest."""
    lottery, where = _lottery(experiment.cluster), _quoted(folder)
    if name == "masks":  # compile the tickets' step once, if they have another number of GPUs than dense runs
        return f"{lottery} masks {where}" + (" --warm-up" if _warms_up(experiment) else "")
    if name in ("report", "rest"):  # rescue runs outside of the container, as it needs sbatch
        rest = " --rest" if name == "rest" else ""
        return f"bash -c {shlex.quote(f'lottery rescue {where}{rest}; {lottery} report {where}')}"
    each = experiment.cluster.trainings_per_gpu
    packed = f" --per-gpu {each}" if each != 1 else ""
    return f"{lottery} train {where} {name} --restarts {experiment.cluster.restarts}{packed}"


def _warms_up(experiment: Experiment) -> bool:
    return gpus_of(experiment, cells=True) != gpus_of(experiment, cells=False)


def gpus_of(experiment: Experiment, cells: bool) -> int:
    """Return the GPUs of a ticket, or of a dense run: those of a node that can share a batch."""
    recipe, cluster = experiment.recipe, experiment.cluster
    if not cells:
        return most_devices(recipe, cluster.gpus_per_node)
    check_devices(recipe, cluster.gpus_per_cell)
    return cluster.gpus_per_cell


def carried(experiment: Experiment, training: Task) -> int:
    """Return the number of trainings per array element; a dense run has its own element."""
    several = experiment.cluster.trainings_per_task
    assert several != "auto", "slurm.packing settles it"
    return 1 if training.dense else several


def together(cluster: Cluster) -> int:
    """Return the number of tickets and controls at a time."""
    return cluster.array_parallelism or cluster.nodes * cluster.gpus_per_node // cluster.gpus_per_cell


def element_limit(cluster: Cluster) -> str:
    """Return the time limit of an array element: that of one training × the trainings it runs one after the other.

    >>> element_limit(Cluster(time_limit="1:00:00", trainings_per_task=8, trainings_per_gpu=4))
    '120'
    """
    carried, at_a_time = cluster.trainings_per_task, cluster.trainings_per_gpu
    assert carried != "auto" and at_a_time != "auto", "slurm.packing settles it"
    in_a_row, seconds = -(-carried // at_a_time), seconds_of(cluster.time_limit)
    return cluster.time_limit if in_a_row == 1 or seconds is None else str(-(-seconds * in_a_row // 60))


def ranges(indices: Sequence[int]) -> str:
    """Return indices in the notation of sbatch's --array.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    runs = []
    for _, group in groupby(enumerate(sorted(indices)), lambda pair: pair[1] - pair[0]):
        run = [index for _, index in group]
        runs.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]))
    return ",".join(runs)


def _lottery(cluster: Cluster) -> str:
    return f"{cluster.container} lottery".strip()


def _times(memory: str, gpus: int) -> str:
    """Return a memory size times the number of GPUs: `32G` × 4 is `128G`."""
    number = memory.rstrip("KMGT")
    return f"{int(number) * gpus}{memory[len(number) :]}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
