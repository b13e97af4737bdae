"""Commands that train."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from slurm import arrays, sbatch
from slurm.arrays import Slurm
from slurm.backend import Backend
from slurm.local import Local
from slurm.mpi import Mpi, world
from sweep.cli import show
from sweep.cli.find import RESULTS, SHIPPED, Devices, On, Override, Results, find, open_home, read_home
from sweep.data import WANTED, place_of
from sweep.errors import Refused
from sweep.experiment import Experiment
from sweep.plan import cells
from sweep.progress import console, duration
from sweep.store import Store
from sweep.worker import Failure, Worker, dense_task, find_cell

Jobs = Annotated[int, Parameter(help="Trainings at a time, each in its own process; 1 = all in this one")]
Restarts = Annotated[
    int | None, Parameter(help="Starts again from the same point after which a task is given up; none: no limit")
]
Quiet = Annotated[bool, Parameter(help="Say nothing but errors")]


def dry_run(*, results: Results = RESULTS, jobs: Jobs = 0) -> int:
    """The whole sweep in minutes on this machine, with data that comes with the installation.

    Example: lottery dry-run
    """
    home = open_home(str(SHIPPED / "dry_run.yaml"), (), results)
    console.print(show.method(home.experiment))
    status = _sweep(home, Local(jobs or min(2, os.cpu_count() or 1)), quiet=False)
    if status == 0:
        console.print(f"\nOn a cluster the same sweep would be these job scripts, in {home.root / 'slurm'}:")
        chain = sbatch.chain(home.experiment, home.root, sbatch.everything(home.experiment))
        sbatch.write_scripts(home.root, chain)
        show.scripts(home, chain)
    return status


def train(
    experiment: str,
    *overrides: Override,
    seed: int | None = None,
    devices: Devices = 0,
    restarts: Restarts = None,
    results: Results = RESULTS,
) -> int:
    """The dense run: weights kept at the start, at the rewind epochs and at the end; then its masks.

    Example: lottery train experiments/cifar10_resnet20.yaml data.path=cifar-10-python.tar.gz
    """
    described = _described(experiment, overrides, results)
    if seed is not None and seed not in described.seeds:
        raise Refused(f"--seed {seed}: expected one of the experiment's seeds {list(described.seeds)}")
    home = open_home(experiment, overrides, results)
    console.print(show.method(home.experiment))
    worker = Worker(home, devices, restarts=restarts)
    failures = []
    for each in home.experiment.seeds if seed is None else (seed,):
        failure = worker.attempt(dense_task(each)) or worker.attempt(f"masks-seed{each}")
        failures += [failure] if failure else []
        if not failure:
            show.dense_summary(home, each)
    return _told(failures)


def masks(
    experiment: str,
    *overrides: Override,
    results: Results = RESULTS,
    warm_up: Annotated[bool, Parameter(help="Then compile on the GPU what every cell will need")] = False,
) -> int:
    """The masks of every dense run that is done. In a SLURM job, cells that wait also get their predicted time limit.

    Example: lottery masks cifar10_resnet20
    """
    home = open_home(experiment, overrides, results)
    worker, failures = Worker(home), list[Failure]()
    for seed in home.experiment.seeds:
        if not (home.dense(seed) / "result.json").exists():  # why, is on record beside it
            failures.append(Failure(f"masks-seed{seed}", "its dense run is not done"))
        elif failure := worker.attempt(f"masks-seed{seed}"):
            failures.append(failure)
        else:
            show.dense_summary(home, seed)
    if warm_up and len(failures) < len(home.experiment.seeds):
        _warm_up(worker)
    if "SLURM_JOB_ID" in os.environ and len(failures) < len(home.experiment.seeds):
        limit = arrays.limit_times(home)
        console.print(f"time limit of the cells: {limit}" if limit else "time limit of the cells: as submitted")
        _told(failures)
        return 0  # the cells of the seeds that have masks can begin
    return _told(failures)


def _warm_up(worker: Worker) -> None:
    """Saves the cells time, nothing more: what goes wrong here is said, and the masks are there all the same."""
    began = time.monotonic()
    try:
        done = worker.warm_up()
    except Exception as error:
        console.print(f"not compiled ahead, every cell does it for itself: {type(error).__name__}: {error}")
        return
    took = duration(time.monotonic() - began)
    console.print(f"compiled ahead in {took}" if done else "nothing to compile ahead: there is no GPU here")


def sweep(
    experiment: str,
    *overrides: Override,
    on: On = "local",
    jobs: Jobs = 1,
    devices: Devices = 0,
    wait: Annotated[bool, Parameter(help="With --on slurm: stay until all has ended")] = False,
    dry_run: Annotated[bool, Parameter(help="With --on slurm: show the job scripts, submit nothing")] = False,
    untried: Annotated[bool, Parameter(help="With --on slurm: only what was never submitted")] = False,
    quiet: Quiet = False,
    results: Results = RESULTS,
) -> int:
    """Everything that is missing: dense run, masks, tickets and controls, report. Run again to continue.

    Example: lottery sweep experiments/cifar10_resnet20.yaml data.path=cifar-10-python.tar.gz seeds=[0]
    """
    if jobs < 1:
        raise Refused(f"--jobs {jobs}: expected 1 or more")
    if on != "local" and (jobs > 1 or devices):
        raise Refused(f"--jobs and --devices are for --on local; --on {on} takes them from the cluster")
    if on != "slurm" and (wait or dry_run or untried):
        raise Refused(f"--wait, --dry-run and --untried are for --on slurm, not --on {on}")

    def opened() -> Store:
        _described(experiment, overrides, results)
        home = open_home(experiment, overrides, results)
        if not quiet:
            console.print(show.method(home.experiment))
        return home

    if on == "local":
        return _sweep(opened(), Local(jobs, devices, quiet), quiet)
    if on == "mpi":
        with world() as ranks:
            return _sweep(opened(), Mpi(ranks, quiet), quiet) if ranks else 0
    if dry_run:
        home = read_home(experiment, overrides, results)
        show.scripts(home, arrays.preview(home))
        return 0
    return _submitted(opened(), Slurm(wait, untried, quiet), quiet)


def ticket(
    experiment: str,
    cell: str = "",
    *overrides: Override,
    index: Annotated[int | None, Parameter(help="The cell's number in the plan, from 0 (an array task's)")] = None,
    devices: Devices = 0,
    restarts: Restarts = None,
    results: Results = RESULTS,
) -> int:
    """Train one cell, named as `lottery plan` lists it, or numbered.

    Example: lottery ticket dry_run ticket-q0.8-k0-seed0
    """
    if index is not None and "=" in cell:  # no name of a cell: the first override
        cell, overrides = "", (cell, *overrides)
    described = _described(experiment, overrides, results)
    plan = [each.slug for each in cells(described)]
    if (index is None) == (not cell):
        raise Refused("ticket: give either the name of a cell or --index; lottery plan lists them")
    if index is not None and not 0 <= index < len(plan):
        raise Refused(f"--index {index}: expected 0 to {len(plan) - 1}")
    task = cell or plan[index or 0]
    find_cell(described, task)
    home = open_home(experiment, overrides, results)
    failure = Worker(home, devices, restarts=restarts).attempt(task)
    if failure:
        return _told([failure])
    console.print(f"{task} done: {home.cell(task)}")
    return 0


def _described(experiment: str, overrides: tuple[str, ...], results: Path) -> Experiment:
    """The experiment, its data looked for. Nothing is written: what else may be refused comes before open_home."""
    found, _ = find(experiment, overrides, results)
    if found.data.name in WANTED:
        place_of(found.data)
    return found


def _submitted(home: Store, slurm: Slurm, quiet: bool) -> int:
    """On SLURM the last job of the chain writes the report."""
    failures = slurm.run(home)
    if slurm.wait:
        show.write_and_list(home, quiet)
    elif not quiet:
        console.print(f"follow it: lottery status {home.root} --watch")
    return _told(failures)


def _sweep(home: Store, backend: Backend, quiet: bool) -> int:
    failures = backend.run(home)
    show.write_and_list(home, quiet)
    return _told(failures)


def _told(failures: list[Failure]) -> int:
    """Say what failed; the exit status that says so too."""
    for failure in failures:
        print(f"lottery: FAILED {failure.task}: {failure.reason}", file=sys.stderr)
    return 0 if not failures else 2 if any(failure.refused for failure in failures) else 1
