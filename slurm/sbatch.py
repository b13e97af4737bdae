"""The job scripts of a sweep as text: pure functions of the experiment, its folder and what is missing.

A chain of jobs: an array for every generation of the graph (dense runs; tickets and controls; …), the masks between the
first two, the report at the end. What `lottery plan` shows, what `lottery sbatch` writes and what `lottery sweep --on
slurm` submits is the same text, plain enough to read, edit and submit by hand. An array's script lists its trainings by
name: what is in the queue keeps its meaning when the experiment grows.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from sweep.errors import Refused
from sweep.experiment import Cluster, Experiment
from sweep.experiment.checks import seconds_of
from sweep.files import write_text
from sweep.graph.training import Task
from sweep.training.schedule import groups_of, most_devices

MAX_ARRAY_SIZE = 1001  # SLURM's default: indices 0 to 1000
SINGLE = ("masks", "report", "rest")  # jobs that are no arrays of trainings


@dataclass(frozen=True)
class Job:
    """One job of the chain."""

    name: str  # of its script, without .sh
    part: str  # dense, initial (pruned there), cells, generation2 …, masks, report, rest (of what was too much); tune,
    # prepare, summary: no part of a sweep, and their tasks are numbers
    waits: tuple[tuple[str, str], ...]  # (afterok, afterany or aftercorr, name of a job that comes before it)
    text: str
    tasks: tuple[str, ...] = ()  # of an array: the names of its trainings
    indices: tuple[int, ...] = ()  # the array element of each; several trainings may share one

    @property
    def elements(self) -> list[tuple[str, ...]]:
        """The trainings of every array element."""
        pairs = list(zip(self.tasks, self.indices, strict=True))
        return [tuple(name for name, index in pairs if index == i) for i in range(1 + max(self.indices, default=-1))]


def chain(
    experiment: Experiment,
    folder: Path,
    missing: Sequence[Task],
    masks: bool = True,
    max_array_size: int = MAX_ARRAY_SIZE,
    room: int | None = None,
) -> list[Job]:
    """The jobs in their order.

    `masks`: whether some are to be made. `room`: jobs that the user may still submit; where it is too small for all
    trainings, the last job submits the rest.
    """
    now = missing if room is None else missing[: max(1, room - masks - 1)]
    generations = [list(group) for _, group in groupby(sorted(now, key=_place), _place)]
    jobs: list[Job] = []
    for group in generations:
        first = group[0].generation == 0
        if masks and not first and not any(job.name == "masks" for job in jobs):
            # afterany: where one seed of several failed, the others go on; without any the masks fail, and the cells go
            jobs.append(_masks(experiment, folder, (("afterany", "dense"),)))
        arrays: list[Job] = []
        for number, part in enumerate(_chunks(group, max_array_size * carried(experiment, group[0]))):
            waits = () if first else _waits(part, jobs, masks)
            # of several arrays each waits for the one before, so that no more run at a time than were asked for
            waits += (("afterany", arrays[-1].name),) if arrays else ()
            arrays.append(_array(experiment, folder, part, number, waits))
        jobs += arrays
    if masks and not any(job.name == "masks" for job in jobs):  # the dense runs alone are to be trained
        jobs.append(_masks(experiment, folder, (("afterany", "dense"),)))
    last = "report" if len(now) == len(missing) else "rest"
    trained = [job.name for job in jobs if job.tasks]
    waits = (("afterany", trained[-1] if trained else "cells"), ("afterany", "masks"))
    waits += tuple(("afterany", name) for name in trained if name.startswith("initial"))
    return [*jobs, Job(last, last, waits, _script(experiment, folder, last, 0, command_of(experiment, folder, last)))]


def _place(training: Task) -> tuple[int, bool]:
    """Its generation; of the first the dense runs come first, then what was pruned at its initialization."""
    return training.generation, training.generation == 0 and training.kind != "dense"


def _waits(part: Sequence[Task], before: Sequence[Job], masks: bool) -> tuple[tuple[str, str], ...]:
    """What a part of a generation waits for: the masks of the dense runs, and the arrays that hold what it needs;
    element by element where each needs only its own forerunner."""
    needed = {need.name for training in part for need in training.needs}
    holding = [job for job in before if needed & set(job.tasks) and not (masks and job.part == "dense")]
    if part[0].generation > 1 and len(holding) == 1 and _element_wise(part, holding[0]):
        return (("aftercorr", holding[0].name),)
    first = (("afterok", "masks"),) if part[0].generation == 1 else ()
    return (*first, *(("afterany", job.name) for job in holding))


def _element_wise(part: Sequence[Task], before: Job) -> bool:
    """Whether element i needs, of the generation before, element i alone."""
    if len(part) > len(before.tasks) or len(set(before.indices)) < len(before.tasks):
        return False
    return all(
        [need.name for need in training.needs if need.generation == training.generation - 1] == [name]
        for training, name in zip(part, before.tasks, strict=False)
    )


def command_of(experiment: Experiment, folder: Path, name: str) -> str:
    """What a job does, as a shell reads it: train, by its name; or make masks, report, submit the rest."""
    lottery, where = _lottery(experiment), _quoted(folder)
    if name == "masks":
        return f"{lottery} masks {where}" + (" --warm-up" if _warms_up(experiment) else "")
    if name in ("report", "rest"):  # rescue is not in the container: it needs sbatch
        rest = " --rest" if name == "rest" else ""
        return f"bash -c {shlex.quote(f'lottery rescue {where}{rest}; {lottery} report {where}')}"
    each = experiment.cluster.trainings_per_gpu
    packed = f" --per-gpu {each}" if each != 1 else ""
    return f"{lottery} train {where} {name} --restarts {experiment.cluster.restarts}{packed}"


def dependency(clauses: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Options of sbatch that make a job wait. One whose turn can never come is cancelled, not left there for ever."""
    text = clause(clauses)
    return [f"--dependency={text}", "--kill-on-invalid-dep=yes"] if text else []


def clause(clauses: Sequence[tuple[str, Sequence[str]]]) -> str:
    """
    >>> clause([("afterok", ["7"]), ("afterany", ["8", "9"]), ("afterany", [])])
    'afterok:7,afterany:8:9'
    """
    return ",".join(f"{how}:{':'.join(ids)}" for how, ids in clauses if ids)


def write_scripts(folder: Path, jobs: Iterable[Job]) -> list[Path]:
    """Put the scripts beside the results, with the folder of their logs: without it SLURM fails and says nothing."""
    (folder / "slurm").mkdir(parents=True, exist_ok=True)
    logs_of(folder.parent).mkdir(parents=True, exist_ok=True)
    paths = []
    for job in jobs:
        paths.append(folder / "slurm" / f"{job.name}.sh")
        write_text(paths[-1], job.text)
    return paths


def commands(folder: Path, jobs: Sequence[Job]) -> str:
    """What a person types to submit the scripts, each waiting for those before."""
    names = {job.name: job.name.replace("-", "_") for job in jobs}
    lines = []
    for job in jobs:
        after = dependency([(how, [f"${names[name]}"]) for how, name in job.waits if name in names])
        words = ["sbatch --parsable", *after, _quoted(folder / "slurm" / f"{job.name}.sh")]
        lines.append(f"{names[job.name]}=$({' '.join(words)})")
    return "\n".join(lines)


def log_pattern(log: Path) -> str:
    """Return a log for --output, where `%a` is the index: the folder's own % are doubled, and a backslash, which ends
    all of that, is refused."""
    if "\\" in str(log) or "\n" in str(log):
        raise Refused(
            f"{log.parent!s}: SLURM takes no backslash and no line break in the name of a log; move the results"
        )
    return shlex.quote(f"{str(log.parent).replace('%', '%%')}/{log.name}")


def logs_of(pool: Path) -> Path:
    """Logs lie with the pool: a training has one, whichever experiment submitted it."""
    return pool / "slurm" / "logs"


def ranges(indices: Sequence[int]) -> str:
    """
    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    runs = []
    for _, group in groupby(enumerate(sorted(indices)), lambda pair: pair[1] - pair[0]):
        run = [index for _, index in group]
        runs.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]))
    return ",".join(runs)


# One script ---------------------------------------------------------------------------------------------------------


def _masks(experiment: Experiment, folder: Path, waits: tuple[tuple[str, str], ...]) -> Job:
    """Masks, and where a cell has another number of GPUs than the dense run: its step, compiled once for all cells."""
    gpus = gpus_of(experiment, cells=True) if _warms_up(experiment) else 0
    text = _script(experiment, folder, "masks", gpus, command_of(experiment, folder, "masks"))
    return Job("masks", "masks", waits, text)


def _warms_up(experiment: Experiment) -> bool:
    return gpus_of(experiment, cells=True) != gpus_of(experiment, cells=False)


def gpus_of(experiment: Experiment, cells: bool) -> int:
    """GPUs of a ticket, as asked for; of a dense run those of a node, or as many as can share a batch."""
    recipe, cluster = experiment.recipe, experiment.cluster
    if not cells:
        return most_devices(recipe, cluster.gpus_per_node)
    groups_of(recipe, cluster.gpus_per_cell)  # refuses a number that cannot share a batch
    return cluster.gpus_per_cell


def _array(
    experiment: Experiment, folder: Path, part: Sequence[Task], number: int, waits: tuple[tuple[str, str], ...]
) -> Job:
    """One array element per training, longest first; as many tickets at a time as the nodes have GPUs for."""
    cluster, generation, dense = experiment.cluster, part[0].generation, part[0].kind == "dense"
    base = "dense" if dense else ("initial", "cells")[generation] if generation < 2 else f"generation{generation}"
    count = -(-len(part) // carried(experiment, part[0]))
    elements = [[training.name for training in part[i::count]] for i in range(count)]  # long and short ones together
    last = count - 1
    throttle = "" if dense else f"%{together(cluster)}"
    limit = cluster.dense_time_limit if dense else element_limit(cluster)
    options = [*_time(limit), f"--array=0-{last}{throttle}" if last else f"--array=0{throttle}"]
    gpus = gpus_of(experiment, cells=not dense)
    word = '"$task"' if count == len(part) else "$task"  # several names are several words
    text = _script(experiment, folder, base, gpus, command_of(experiment, folder, word), options, elements)
    names = tuple(name for element in elements for name in element)
    indices = tuple(index for index, element in enumerate(elements) for _ in element)
    return Job(base if not number else f"{base}-{number + 1}", base, waits, text, names, indices)


def carried(experiment: Experiment, training: Task) -> int:
    """Trainings of an array element; a dense run has one to itself."""
    several = experiment.cluster.trainings_per_task
    assert several != "auto", "slurm.packing settles it"
    return 1 if training.kind == "dense" else several


def _chunks(group: Sequence[Task], size: int) -> list[Sequence[Task]]:
    return [group[first : first + size] for first in range(0, len(group), size)]


def tuning(experiment: Experiment, folder: Path, trials: Sequence[int]) -> Job:
    """One array element per trial of a search, each with the GPUs of a dense run."""
    cluster = experiment.cluster
    command = f'{_lottery(experiment)} tune {_quoted(folder)} --index "$SLURM_ARRAY_TASK_ID"'
    options = [*_time(cluster.dense_time_limit), f"--array={ranges(trials)}%{cluster.nodes}"]
    text = _script(experiment, folder, "tune", cluster.gpus_per_node, command, options)
    return Job("tune", "tune", (), text, tuple(map(str, trials)), tuple(range(len(trials))))


def preparing(cluster: Cluster, folder: Path, words: Sequence[str], parts: int, strict: bool) -> tuple[Job, Job]:
    """Images → shards, shared by the elements of an array; and one job after it that finishes and tells."""
    experiment = Experiment(name="data", cluster=cluster)
    command = f"{_lottery(experiment)} {shlex.join(words)}"
    mine = f'{command} --part "$SLURM_ARRAY_TASK_ID/{parts}" --jobs "$SLURM_CPUS_PER_TASK"'
    options = [*_time(cluster.time_limit), f"--array=0-{parts - 1}"]
    strictly = " --strict" if strict else ""
    making = _script(experiment, folder, "prepare", 0, mine, options)
    telling = _script(experiment, folder, "summary", 0, f'{command} --jobs "$SLURM_CPUS_PER_TASK"{strictly}')
    numbers = tuple(range(parts))
    return (
        Job("prepare", "prepare", (), making, tuple(map(str, numbers)), numbers),
        Job("summary", "summary", (("afterany", "prepare"),), telling),
    )


def together(cluster: Cluster) -> int:
    """Cells at a time."""
    return cluster.array_parallelism or cluster.nodes * cluster.gpus_per_node // cluster.gpus_per_cell


def _script(
    experiment: Experiment,
    folder: Path,
    part: str,
    gpus: int,
    command: str,
    more: Sequence[str] = (),
    elements: Sequence[Sequence[str]] = (),
) -> str:
    """A few lines around `lottery supervise`."""
    cluster = experiment.cluster
    array = any(option.startswith("--array") for option in more)
    name = f"{part}-%a.out" if array and not elements else f"{part}.out"
    if part in ("prepare", "summary"):  # a data set's own folder
        logs, log = folder / "slurm" / "logs", name
    else:
        logs, log = logs_of(folder.parent), f"{folder.name}-{name}"
    options = [
        f"--job-name={experiment.name}-{part}",
        *(f"--{name}={value}" for name in ("partition", "account", "qos") if (value := getattr(cluster, name))),
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={cluster.cpus_per_gpu * max(gpus, 1)}",
        *([f"--gres=gpu:{gpus}", f"--mem={_times(cluster.memory_per_gpu, gpus)}"] if gpus else []),
        *more,
        f"--signal=B:USR1@{cluster.warning_seconds}",
        "--requeue",
        "--open-mode=append",  # a requeued task would truncate its log otherwise
        f"--output={log_pattern(logs / log)}",
        *cluster.options,
    ]
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in options)]
    lines.append("trap '' USR1 USR2  # a warning before the work stands would end the job")
    if elements:  # a log is named by the (first) training and not by the job: a later job of it appends to the same
        several = any(len(element) > 1 for element in elements)
        tasks = [f'    "{" ".join(element)}"' if several else f"    {element[0]}" for element in elements]
        first = "${task%% *}" if several else "$task"
        lines += ["tasks=(", *tasks, ")", 'task="${tasks[$SLURM_ARRAY_TASK_ID]}"',
                  f'exec >> {_quoted(logs)}/"{first}.out" 2>&1']  # fmt: skip
    return "\n".join([*lines, "set -eo pipefail", *cluster.setup, f"exec lottery supervise {command}"]) + "\n"


def elements_in(script: str) -> list[list[str]]:
    """Return the trainings that the script of an array lists, by array element; nothing where it is no such script.

    >>> elements_in("tasks=(\\n    dense-seed0-1a\\n    'a b'\\n)\\ntask=…")
    [['dense-seed0-1a'], ['a', 'b']]
    """
    _, found, rest = script.partition("tasks=(\n")
    return [shlex.split(line)[0].split() for line in rest.partition("\n)")[0].splitlines()] if found else []


def _lottery(experiment: Experiment) -> str:
    return f"{experiment.cluster.container} lottery".strip()


def element_limit(cluster: Cluster) -> str:
    """Return the time limit of an array element: that of one training, times as many as it carries one after the other.

    >>> element_limit(Cluster(time_limit="1:00:00", trainings_per_task=8, trainings_per_gpu=4))
    '120'
    """
    carried, at_a_time = cluster.trainings_per_task, cluster.trainings_per_gpu
    assert carried != "auto" and at_a_time != "auto", "slurm.packing settles it"
    in_a_row, seconds = -(-carried // at_a_time), seconds_of(cluster.time_limit)
    return cluster.time_limit if in_a_row == 1 or seconds is None else str(-(-seconds * in_a_row // 60))


def _time(limit: str) -> list[str]:
    return [f"--time={limit}"] if limit else []


def _times(memory: str, gpus: int) -> str:
    """`32G` for each of 4 GPUs → `128G`."""
    number = memory.rstrip("KMGT")
    return f"{int(number) * gpus}{memory[len(number) :]}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
