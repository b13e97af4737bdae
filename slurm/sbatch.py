"""The job scripts of a sweep as text: pure functions of the experiment, its folder and what is missing.

A chain of jobs: the dense runs, their masks, the cells as job arrays, the report. What `lottery plan` shows, what
`lottery sbatch` writes and what `lottery sweep --on slurm` submits is the same text, plain enough to read, edit and
submit by hand.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from sweep.errors import Refused
from sweep.experiment import Cluster, Experiment
from sweep.plan import cells
from sweep.store import write_text
from sweep.worker import dense_task

MAX_ARRAY_SIZE = 1001  # SLURM's default: indices 0 to 1000


@dataclass(frozen=True)
class Missing:
    """What is to be submitted: numbers of dense runs (in `seeds`) and of cells (in the plan)."""

    dense: tuple[int, ...]
    masks: bool
    cells: tuple[int, ...]

    @property
    def any(self) -> bool:
        return bool(self.dense or self.masks or self.cells)

    def tasks(self, experiment: Experiment) -> list[str]:
        """The trainings among it, by name."""
        plan = cells(experiment)
        return [dense_task(experiment.seeds[i]) for i in self.dense] + [plan[i].slug for i in self.cells]


@dataclass(frozen=True)
class Job:
    """One job of the chain."""

    name: str  # of its script, without .sh
    part: str  # dense, masks, cells, report, rest (submits the cells that were too many), or tune
    waits: tuple[tuple[str, str], ...]  # (afterok or afterany, name of a job that comes before it)
    text: str
    first: int = 0  # of an array: what index 0 stands for
    indices: tuple[int, ...] = ()  # of an array


def everything(experiment: Experiment) -> Missing:
    """A sweep of which nothing is done."""
    return Missing(tuple(range(len(experiment.seeds))), True, tuple(range(len(cells(experiment)))))


def chain(
    experiment: Experiment,
    folder: Path,
    missing: Missing,
    max_array_size: int = MAX_ARRAY_SIZE,
    room: int | None = None,
) -> list[Job]:
    """The jobs in their order.

    `room`: jobs that the user may still submit. Where it is too small for all cells, the last job submits the rest.
    """
    jobs = []
    now = len(missing.cells) if room is None else max(1, room - len(missing.dense) - missing.masks - 1)
    if missing.dense:
        jobs.append(_dense(experiment, folder, missing.dense))
    if missing.masks:
        # afterany: where one seed of several failed, the others go on; without any the masks fail, and the cells go
        jobs.append(_masks(experiment, folder))
    arrays: list[Job] = []
    for first, indices in _windows(missing.cells[:now], max_array_size):
        # of several arrays each waits for the one before, so that no more cells run at a time than were asked for
        before = (("afterany", arrays[-1].name),) if arrays else ()
        arrays.append(_cells(experiment, folder, first, indices, (("afterok", "masks"), *before)))
    report = f"{_lottery(experiment)} report {_quoted(folder)}"
    last, work = ("report", [report]) if now >= len(missing.cells) else ("rest", [*_rest(folder), report])
    waits = ("afterany", arrays[-1].name if arrays else "cells"), ("afterany", "masks")
    return [*jobs, *arrays, Job(last, last, waits, _script(experiment, folder, last, 0, work))]


def _rest(folder: Path) -> list[str]:
    """Submitting is refused while the queue is full: it is tried for an hour. Not in a container: it needs sbatch."""
    command = f"lottery sweep {_quoted(folder)} --on slurm --untried"
    return [f"for try in $(seq 12); do {command} && break || sleep 300; done"]


def dependency(clauses: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Options of sbatch that make a job wait. One whose turn can never come is cancelled, not left there for ever."""
    text = ",".join(f"{how}:{':'.join(ids)}" for how, ids in clauses if ids)
    return [f"--dependency={text}", "--kill-on-invalid-dep=yes"] if text else []


def write_scripts(folder: Path, jobs: Iterable[Job]) -> list[Path]:
    """Put the scripts beside the results, with the folder of their logs: without it SLURM fails and says nothing."""
    (folder / "slurm" / "logs").mkdir(parents=True, exist_ok=True)
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


def _pattern(log: Path) -> str:
    """A log for --output, where `%a` is the index: the folder's own % are doubled, and a backslash ends all of that."""
    if "\\" in str(log) or "\n" in str(log):
        raise Refused(
            f"{log.parent!s}: SLURM takes no backslash and no line break in the name of a log; move the results"
        )
    return shlex.quote(f"{str(log.parent).replace('%', '%%')}/{log.name}")


def log_of(folder: Path, part: str, first: int, index: int | str) -> Path:
    """The log of an array element, named by what is trained and not by the job: a later job appends to it."""
    return folder / "slurm" / "logs" / (f"{part}-{index}.out" if not first else f"{part}-{first}+{index}.out")


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


def _dense(experiment: Experiment, folder: Path, numbers: Sequence[int]) -> Job:
    """One node with all its GPUs for each seed."""
    cluster = experiment.cluster
    seeds = " ".join(map(str, experiment.seeds))
    command = (
        f'{_lottery(experiment)} train {_quoted(folder)} --seed "${{seeds[$SLURM_ARRAY_TASK_ID]}}" '
        f"--restarts {cluster.restarts}"
    )
    options = [*_time(cluster.dense_time_limit), f"--array={ranges(numbers)}"]
    work = [f"seeds=({seeds})", *_watched(command)]
    text = _script(experiment, folder, "dense", cluster.gpus_per_node, work, options)
    return Job("dense", "dense", (), text, 0, tuple(numbers))


def _masks(experiment: Experiment, folder: Path) -> Job:
    """Masks, and where a cell has another number of GPUs than the dense run: its step, compiled once for all cells."""
    cluster, command = experiment.cluster, f"{_lottery(experiment)} masks {_quoted(folder)}"
    gpus = cluster.gpus_per_cell if cluster.gpus_per_cell != cluster.gpus_per_node else 0
    text = _script(experiment, folder, "masks", gpus, [f"{command} --warm-up" if gpus else command])
    return Job("masks", "masks", (("afterany", "dense"),), text)


def _cells(
    experiment: Experiment, folder: Path, first: int, indices: Sequence[int], waits: tuple[tuple[str, str], ...]
) -> Job:
    """One array element per cell, longest first, as many at a time as the nodes have GPUs for."""
    cluster = experiment.cluster
    number = "$SLURM_ARRAY_TASK_ID" if not first else f"$(({first} + SLURM_ARRAY_TASK_ID))"
    command = f'{_lottery(experiment)} ticket {_quoted(folder)} --index "{number}" --restarts {cluster.restarts}'
    options = [*_time(cluster.time_limit), f"--array={ranges(indices)}%{together(cluster)}"]
    name = "cells" if not first else f"cells-{first}"
    text = _script(experiment, folder, "cells", cluster.gpus_per_cell, _watched(command), options, first)
    return Job(name, "cells", waits, text, first, tuple(indices))


def tuning(experiment: Experiment, folder: Path, trials: Sequence[int]) -> Job:
    """One array element per trial of a search, each with the GPUs of a dense run."""
    cluster = experiment.cluster
    command = f'{_lottery(experiment)} tune {_quoted(folder)} --index "$SLURM_ARRAY_TASK_ID"'
    options = [*_time(cluster.dense_time_limit), f"--array={ranges(trials)}%{cluster.nodes}"]
    text = _script(experiment, folder, "tune", cluster.gpus_per_node, _watched(command), options)
    return Job("tune", "tune", (), text, 0, tuple(trials))


def preparing_scripts(
    cluster: Cluster, folder: Path, words: Sequence[str], parts: int, strict: bool
) -> tuple[str, str]:
    """Images → shards, shared by the elements of an array; and one job after it that finishes and tells."""
    experiment = Experiment(name="data", cluster=cluster)
    command = f"{_lottery(experiment)} {shlex.join(words)}"
    mine = f'{command} --part "$SLURM_ARRAY_TASK_ID/{parts}" --jobs "$SLURM_CPUS_PER_TASK"'
    options = [*_time(cluster.time_limit), f"--array=0-{parts - 1}"]
    strictly = " --strict" if strict else ""
    return (
        _script(experiment, folder, "prepare", 0, _watched(mine), options),
        _script(
            experiment,
            folder,
            "summary",
            0,
            [f'{command} --jobs "$SLURM_CPUS_PER_TASK"{strictly}'],
        ),
    )


def together(cluster: Cluster) -> int:
    """Cells at a time."""
    return cluster.array_parallelism or cluster.nodes * cluster.gpus_per_node // cluster.gpus_per_cell


def _watched(command: str) -> list[str]:
    """Runs in the background, because bash handles a signal only between commands or in `wait`."""
    return [
        "warned= status=0",
        """trap 'warned=yes; kill -USR1 "$work"' USR1  # the time is nearly up: save""",
        f"{command} &",
        "work=$!",
        'wait "$work" || status=$?',
        'if [ "$warned" ]; then status=0; wait "$work" || status=$?; fi  # the signal ended the first wait',
        "# saved itself in time (130), or was killed by a signal: another turn. 143: cancelled",
        'again=; if [ "$status" -gt 128 ] && [ "$status" -lt 193 ]; then again=yes; fi',
        'if [ "$status" = 143 ] || { [ "$status" = 130 ] && [ -z "$warned" ]; }; then again=; fi',
        # the bare job id would requeue the whole array from its last element
        "for try in ${again:+1 2 3 4 5}; do",
        '    scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" && sleep 60 || sleep 10',
        "done",
        'exit "$status"',
    ]


def _script(
    experiment: Experiment,
    folder: Path,
    part: str,
    gpus: int,
    work: Sequence[str],
    more: Sequence[str] = (),
    first: int = 0,
) -> str:
    cluster = experiment.cluster
    array = part in ("dense", "cells", "tune", "prepare")
    log = log_of(folder, part, first, "%a") if array else folder / "slurm" / "logs" / f"{part}.out"
    options = [
        f"--job-name={experiment.name}-{part}",
        *(f"--{name}={value}" for name in ("partition", "account", "qos") if (value := getattr(cluster, name))),
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={cluster.cpus_per_gpu * max(gpus, 1)}",
        *([f"--gres=gpu:{gpus}", f"--mem={_times(cluster.memory_per_gpu, gpus)}"] if gpus else []),
        *more,
        *([f"--signal=B:USR1@{cluster.warning_seconds}"] if array else []),
        "--requeue",
        "--open-mode=append",  # a requeued task would truncate its log otherwise
        f"--output={_pattern(log)}",
        *cluster.options,
    ]
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in options), "set -eo pipefail", *cluster.setup]
    return "\n".join([*lines, _banner(array), *work]) + "\n"


def _banner(array: bool) -> str:
    """A line in the log at every start, as later starts append to it."""
    job = "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" if array else "$SLURM_JOB_ID"
    return f'echo "$(date -Is) job {job} on $SLURMD_NODENAME, start $((${{SLURM_RESTART_COUNT:-0}} + 1))"'


def _windows(indices: Sequence[int], size: int) -> list[tuple[int, list[int]]]:
    """Indices by array: an array's own start at 0 and stay under `size`."""
    return [
        (window * size, [index - window * size for index in group])
        for window, group in groupby(sorted(indices), lambda index: index // size)
    ]


def _lottery(experiment: Experiment) -> str:
    return f"{experiment.cluster.container} lottery".strip()


def _time(limit: str) -> list[str]:
    return [f"--time={limit}"] if limit else []


def _times(memory: str, gpus: int) -> str:
    """`32G` for each of 4 GPUs → `128G`."""
    number = memory.rstrip("KMGT")
    return f"{int(number) * gpus}{memory[len(number) :]}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
