"""Commands about a sweep on a cluster: its scripts, trying again, cancelling, its logs."""

from __future__ import annotations

import sys
import time
from typing import Annotated

from cyclopts import Parameter

from lottery.cli.completion import trainings
from lottery.cli.find import RESULTS, ExperimentName, Override, Results, TrainingName, find, open_home, read_home
from slurm import arrays, jobs, sbatch, status
from slurm.cancel import cancel
from slurm.rescue import rescue
from slurm.supervise import supervise
from sweep.errors import Refused, command
from sweep.graph.state import missing
from sweep.progress import console
from sweep.work.fitting import fitting


def sbatch_(experiment: ExperimentName, *overrides: Override, results: Results = RESULTS) -> int:
    """Write the job scripts of the whole sweep, to read, edit and submit by hand.

    Example: lottery sbatch experiments/cifar10_resnet20.yaml data.path=cifar-10-python.tar.gz
    """
    if missing(described := read_home(experiment, overrides, results)):
        fitting(described.experiment)
    chain = arrays.preview(described)  # what it refuses is refused before a folder is made
    home = open_home(experiment, overrides, results)
    if not chain:
        console.print("nothing is missing")
        return 0
    for path in sbatch.write_scripts(home.root, chain):
        console.print(str(path))
    console.print("\nsubmit them, each waiting for the one before:")
    console.print(sbatch.commands(home.root, chain), soft_wrap=True)  # to be copied
    return 0


def supervise_(*command: Annotated[str, Parameter(help="What to run", allow_leading_hyphen=True)]) -> int:
    """Run a command inside a job, pass SLURM's signals on to it, and requeue it where it was saved or killed.

    Example: lottery supervise lottery train cifar10_resnet20 dense-seed0
    """
    if not command:
        raise Refused("supervise: expected a command to run")
    return supervise(command)


def rescue_(
    experiment: ExperimentName,
    *,
    rest: Annotated[bool, Parameter(help="Also what was never submitted, for want of room in the queue")] = False,
    results: Results = RESULTS,
) -> int:
    """Submit again what was lost, not what was cancelled; the last job of a sweep does it before it reports.

    Example: lottery rescue cifar10_resnet20
    """
    arrays.tell(rescue(open_home(experiment, (), results), rest))
    return 0


def retry(
    experiment: ExperimentName,
    *cells: TrainingName,
    failed: Annotated[bool, Parameter(help="Only what failed, not what was cancelled or lost")] = False,
    results: Results = RESULTS,
) -> int:
    """Submit again what failed, was cancelled or got lost, or the cells named; they go on from their checkpoints.

    Example: lottery retry cifar10_resnet20 --failed
    """
    _, folder = find(experiment, (), results)
    home = open_home(str(folder), (), results)
    cells = tuple(home.training(cell).slug for cell in cells)
    if not jobs.own(home):
        raise Refused(f"{home.root}: was never submitted; {command('sweep', experiment)} tries again what failed")
    standing = status.standing_of(home)
    if standing.silence:
        raise Refused(standing.silence)
    states = ("failed",) if failed else ("failed", "lost", "begun")
    lost = {one.task for one in standing.tasks if one.state in states}
    wanted = lost & set(cells) if cells else lost
    for cell in set(cells) - lost:
        state = next(one.state for one in standing.tasks if one.task == cell)
        console.print(f"{cell}: {state}, left alone")
    if wanted:
        arrays.tell(arrays.submit(home, wanted))
    else:
        console.print("nothing to try again")
    return 0


def cancel_(
    experiment: ExperimentName,
    *cells: TrainingName,
    earlier: Annotated[
        bool, Parameter(help="Only jobs of an earlier plan, which the experiment no longer asks for")
    ] = False,
    all_: Annotated[
        bool, Parameter(name="--all", help="Also trainings that another experiment under way wants")
    ] = False,
    results: Results = RESULTS,
) -> int:
    """Cancel the jobs of a sweep that wait or run, or those of the trainings named. What is done stays.

    A training that another experiment under way wants too is left alone.
    Example: lottery cancel cifar10_resnet20
    """
    home = read_home(experiment, (), results)
    found = cancel(home, tuple(home.training(cell).slug for cell in cells), earlier, all_)
    console.print(f"cancelled: {', '.join(sorted(found.gone))}" if found.gone else "nothing to cancel waits or runs")
    for name, words in found.left.items():
        console.print(f"left alone, because {name} wants them too: {', '.join(sorted(words))} (--all cancels them)")
    if found.shared:
        console.print(f"left alone, because trainings that were not named share their jobs: {', '.join(found.shared)}")
    return 0


def logs(
    experiment: ExperimentName,
    cell: Annotated[str, Parameter(help="A training as lottery plan lists them, masks or report", completer=trainings)],
    *,
    follow: Annotated[bool, Parameter(help="Go on showing what is added, until Ctrl-C")] = False,
    results: Results = RESULTS,
) -> int:
    """The log of a training on the cluster, all its starts one after the other; or of masks or report.

    Example: lottery logs cifar10_resnet20 ticket-q0.79-k10ep-seed0
    """
    home = read_home(experiment, (), results)
    path = jobs.log_of(home, cell)
    if not path.exists():
        raise Refused(f"{cell}: no log; it was not submitted, or has not begun ({command('status', experiment)})")
    with open(path, errors="replace") as f:
        while True:
            sys.stdout.write(f.read())
            if not follow:
                return 0
            sys.stdout.flush()
            time.sleep(0.5)
