"""Commands for a sweep on a cluster: scripts, retry, cancel, logs."""

from __future__ import annotations

import time
from typing import Annotated

from cyclopts import Parameter

from lottery.cli import completion
from lottery.cli.find import RESULTS, ExperimentName, Override, Results, TrainingName, find, open_home, read_home
from slurm import arrays, jobs, sbatch, status
from slurm.cancel import cancel
from slurm.rescue import rescue
from slurm.supervise import supervise
from sweep import files
from sweep.errors import Refused, command
from sweep.graph.home import Home
from sweep.graph.state import missing, state_of
from sweep.progress import console
from sweep.work.fitting import fitting

# metrics shown per epoch
SHOWN = ("train_loss", "train_top1", "train_top5", "validation_top1", "learning_rate", "seconds")


def sbatch_(experiment: ExperimentName, *overrides: Override, results: Results = RESULTS) -> None:
    """Write the job scripts of the whole sweep, to read, edit and submit by hand.

    Example: lottery sbatch experiments/cifar10_resnet20.yaml data.path=cifar-10-python.tar.gz
    """
    if missing(described := read_home(experiment, overrides, results)):
        fitting(described.experiment)
    chain = arrays.preview(described)  # may raise Refused, so before a folder is created
    home = open_home(experiment, overrides, results)
    if not chain:
        return console.print("nothing is missing")
    for path in sbatch.write_scripts(home.root, chain):
        console.print(str(path))
    console.print("\nsubmit them, each waiting for the one before:")
    console.print(sbatch.commands(home.root, chain), soft_wrap=True)  # to be copied


def supervise_(*command: Annotated[str, Parameter(help="What to run", allow_leading_hyphen=True)]) -> int:
    """Run a command inside a job, pass SLURM's signals on to it, and requeue the job if it was saved or killed.

    Example: lottery supervise lottery train cifar10_resnet20 dense-seed0
    """
    if not command:
        raise Refused("supervise: expected a command to run")
    return supervise(command)


def rescue_(
    experiment: ExperimentName,
    *,
    rest: Annotated[bool, Parameter(help="Also tasks never submitted because the queue was full")] = False,
    results: Results = RESULTS,
) -> None:
    """Submit again the tasks that were lost, not those cancelled; the last job of a sweep does so before the report.

    Example: lottery rescue cifar10_resnet20
    """
    arrays.tell(rescue(open_home(experiment, (), results), rest))


def retry(
    experiment: ExperimentName,
    *trainings: TrainingName,
    failed: Annotated[bool, Parameter(help="Only failed trainings, not cancelled or lost ones")] = False,
    results: Results = RESULTS,
) -> None:
    """Submit again trainings that failed, were cancelled or got lost, or those named; they continue their checkpoints.

    Example: lottery retry cifar10_resnet20 --failed
    """
    _, folder = find(experiment, (), results)
    if not (folder / "experiment.yaml").is_file():
        raise Refused(f"{folder}: nothing there yet; {command('sweep', experiment)} makes it")
    home = open_home(str(folder), (), results)
    named = {home.training(word).slug for word in trainings}
    if not jobs.own(home):
        raise Refused(f"{home.root}: was never submitted; {command('sweep', experiment)} tries again what failed")
    standing = status.standing_of(home)
    if standing.silence:
        raise Refused(standing.silence)
    states = ("failed",) if failed else ("failed", "lost", "begun")
    lost = {one.task for one in standing.tasks if one.state in states}
    wanted = lost & named if named else lost
    for one in standing.tasks:
        if one.task in named - lost:
            console.print(f"{one.task}: {one.state}, left alone")
    if wanted:
        arrays.tell(arrays.submit(home, wanted))
    else:
        console.print("nothing to try again")


def cancel_(
    experiment: ExperimentName,
    *trainings: TrainingName,
    earlier: Annotated[
        bool, Parameter(help="Only jobs of an earlier plan, which the experiment no longer asks for")
    ] = False,
    all_: Annotated[
        bool, Parameter(name="--all", help="Also trainings that another experiment with jobs needs")
    ] = False,
    results: Results = RESULTS,
) -> None:
    """Cancel the jobs of a sweep that wait or run, or those of the trainings named. Results are kept.

    A training that another experiment with jobs in the queue needs is kept too.
    Example: lottery cancel cifar10_resnet20
    """
    home = read_home(experiment, (), results)
    found = cancel(home, tuple(home.training(word).slug for word in trainings), earlier, all_)
    console.print(f"cancelled: {', '.join(sorted(found.gone))}" if found.gone else "nothing to cancel waits or runs")
    for name, words in found.left.items():
        console.print(f"left alone, because {name} wants them too: {', '.join(sorted(words))} (--all cancels them)")
    if found.shared:
        console.print(f"left alone, because trainings that were not named share their jobs: {', '.join(found.shared)}")


def logs(
    experiment: ExperimentName,
    training: Annotated[
        str,
        Parameter(help="A training as lottery plan --all lists them, masks or report", completer=completion.trainings),
    ],
    *,
    follow: Annotated[bool, Parameter(help="Keep showing new lines, until Ctrl-C")] = False,
    results: Results = RESULTS,
) -> None:
    """Show the log of a training on the cluster with all its starts or, if it was trained here, its epochs.

    Example: lottery logs cifar10_resnet20 ticket-q0.79-k10ep-seed0
    """
    home = read_home(experiment, (), results)
    path, shown = jobs.log_of(home, training), 0
    while True:
        text = path.read_text(errors="replace") if path.exists() else _epochs(home, training)
        if not text and not follow:
            state = command("status", experiment)
            raise Refused(f"{training}: no log; it was not submitted, or has not begun ({state})")
        print(text[shown:], end="", flush=True)
        if not follow:
            return
        shown = len(text)
        time.sleep(0.5)


def _epochs(home: Home, word: str) -> str:
    """Return a line for every epoch of a training, and one for why it failed or was skipped."""
    if word in sbatch.SINGLE:
        return ""
    state, epochs = state_of(home, home.training(word)), home.experiment.recipe.epochs
    lines = [
        f"epoch {line['epoch']}/{epochs}: {', '.join(f'{name} {line[name]:.4g}' for name in SHOWN if name in line)}"
        for line in files.read_metrics(home.folder_of(word))
    ]
    lines += [f"{state.state}: {state.note}"] if state.state in ("failed", "skipped") else []
    return "".join(f"{line}\n" for line in lines)
