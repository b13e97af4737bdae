"""The job scripts of a sweep as text: pure functions of the experiment and its folder.

Three scripts, chained by dependency: the dense run with its masks, the array of cells, the report. Each is plain
enough to read, edit and submit by hand.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from sweep.errors import Refused
from sweep.experiment import Cluster, Experiment
from sweep.plan import cells
from sweep.store import write_text


def dense_script(experiment: Experiment, folder: Path) -> str:
    """One node with all its GPUs: dense run of every seed, then the masks."""
    cluster = experiment.cluster
    array = f"0-{len(experiment.seeds) - 1}" if len(experiment.seeds) > 1 else ""
    work = [
        f"seeds=({' '.join(map(str, experiment.seeds))})",
        f'srun lottery train {_quoted(folder)} --seed "${{seeds[${{SLURM_ARRAY_TASK_ID:-0}}]}}"',
    ]
    return _script(experiment, folder, "dense", cluster.gpus_per_node, work, array)


def cells_script(experiment: Experiment, folder: Path) -> str:
    """One array element per cell, longest first, as many at a time as the nodes have GPUs for."""
    cluster, count = experiment.cluster, len(cells(experiment))
    if not count:
        raise Refused("prune.quantiles: received [], expected some: the sweep has no cells to submit")
    together = cluster.nodes * cluster.gpus_per_node // cluster.gpus_per_cell
    work = [f'srun lottery ticket {_quoted(folder)} --index "$SLURM_ARRAY_TASK_ID"']
    return _script(experiment, folder, "cells", cluster.gpus_per_cell, work, f"0-{count - 1}%{together}")


def report_script(experiment: Experiment, folder: Path) -> str:
    return _script(experiment, folder, "report", 0, [f"lottery report {_quoted(folder)}"])


def scripts(experiment: Experiment, folder: Path) -> dict[str, str]:
    """All three by the name of their file, in the order in which they run."""
    makers = {"dense.sh": dense_script, "cells.sh": cells_script, "report.sh": report_script}
    return {name: make(experiment, folder) for name, make in makers.items()}


def write_scripts(experiment: Experiment, folder: Path) -> Path:
    """Put the scripts beside the results, with the folder of their logs: without it SLURM fails and says nothing."""
    (folder / "slurm" / "logs").mkdir(parents=True, exist_ok=True)
    for name, text in scripts(experiment, folder).items():
        write_text(folder / "slurm" / name, text)
    return folder / "slurm"


def chain(folder: Path) -> str:
    """The commands that submit the three scripts, each waiting for the one before."""
    dense, cells_, report = (_quoted(folder / "slurm" / f"{name}.sh") for name in ("dense", "cells", "report"))
    return "\n".join(
        [
            f"dense=$(sbatch --parsable {dense})",
            f'cells=$(sbatch --parsable --dependency=afterok:"$dense" --kill-on-invalid-dep=yes {cells_})',
            f'sbatch --dependency=afterany:"$cells" {report}',
        ]
    )


def _script(experiment: Experiment, folder: Path, part: str, gpus: int, work: Sequence[str], array: str = "") -> str:
    cluster = experiment.cluster
    logs = folder / "slurm" / "logs" / (f"{part}-%A_%a.out" if array else f"{part}-%j.out")
    options = [
        f"--job-name={experiment.name}-{part}",
        *_chosen(cluster),
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={cluster.cpus_per_gpu * max(gpus, 1)}",
        *([f"--gres=gpu:{gpus}", f"--mem={_times(cluster.memory_per_gpu, gpus)}"] if gpus else []),
        *([f"--time={cluster.time_limit}"] if cluster.time_limit and part == "cells" else []),
        *([f"--array={array}"] if array else []),
        "--requeue",
        "--open-mode=append",  # a requeued task would truncate its log otherwise
        f"--output={_quoted(logs)}",
        *cluster.options,
    ]
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in options), "set -eo pipefail", *cluster.setup, *work]
    return "\n".join(lines) + "\n"


def _chosen(cluster: Cluster) -> list[str]:
    return [f"--{name}={value}" for name in ("partition", "account", "qos") if (value := getattr(cluster, name))]


def _times(memory: str, gpus: int) -> str:
    """`32G` for each of 4 GPUs → `128G`."""
    number = memory.rstrip("KMGT")
    return f"{int(number) * gpus}{memory[len(number) :]}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
