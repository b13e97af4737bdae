"""The command `lottery tune`: a search for a better dense recipe."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.table import Table

from lottery.cli.find import RESULTS, SHIPPED, Devices, ExperimentName, Json, Override, Results, find, print_json
from slurm import arrays, jobs, launch, queue, sbatch
from sweep.data import refuse_absent
from sweep.errors import Busy, Refused, command
from sweep.graph import claim
from sweep.graph.home import Home, open_home
from sweep.progress import console
from sweep.progress import show as show_table
from sweep.tuning import search
from sweep.tuning import trials as tuning
from sweep.tuning.search import Trial
from sweep.tuning.trials import Tuning
from sweep.work.worker import Worker


def tune(
    experiment: ExperimentName,
    *overrides: Override,
    search: Annotated[
        Path | None, Parameter(help="The search file; experiments/sweeps/ has some for shipped experiments")
    ] = None,
    on: Annotated[Literal["local", "slurm"], Parameter(help="Where: this machine, or a SLURM cluster")] = "local",
    index: Annotated[int | None, Parameter(help="Only this trial, from 0 (an array task's)")] = None,
    show: Annotated[bool, Parameter(help="Only show the outcomes of the trials")] = False,
    devices: Devices = 0,
    results: Results = RESULTS,
    json_: Json = False,
) -> int:
    """Search for a better recipe of the dense network, by validation accuracy. Run again to continue.

    Several processes may share a search. EXPERIMENT may be the folder of a search (results/tune-…).
    Example: lottery tune experiments/dry_run.yaml
    """
    if (Path(experiment) / "search.yaml").is_file():
        if overrides:
            raise Refused(f"{overrides[0]}: expected no fields beside {experiment}, a search on record with its own")
        made = tuning.reopen(Path(experiment))
    else:
        made = _described(experiment, overrides, search, results)
    if not show:
        tuning.create(made)
        if on == "slurm":
            _submit(made)
            return 0
        if index is not None:  # an element of a job array
            if not 0 <= index < made.search.count:
                raise Refused(f"--index {index}: expected 0 to {made.search.count - 1}")
            return _attempt(made, made.choose(index), devices, made.experiment.cluster.restarts)
        _train_all(made, devices)
    _tell(made, json_)
    return 0


def _described(experiment: str, overrides: tuple[str, ...], path: Path | None, results: Path) -> Tuning:
    """Return the search for an experiment file; raise Refused for any mistake before anything is written."""
    found, _ = find(experiment, overrides, results)
    refuse_absent(found.data)
    path = path or SHIPPED / "sweeps" / f"{found.name}.yaml"
    made = tuning.describe(found, search.read(path), results)
    for trial in made.planned or [search.chosen(made.search, found, {})]:
        find(experiment, (*overrides, *trial), results)
    return made


def _train_all(made: Tuning, devices: int) -> None:
    """Train every trial; those that another process trains come last."""
    numbers = list(range(made.search.count))
    for patient in (False, True):
        busy = []
        for number in numbers:
            trial = made.choose(number)
            console.print(f"trial {number + 1} of {made.search.count}: {' '.join(trial)}")
            try:
                _attempt(made, trial, devices, patient=patient)
            except Busy:
                busy.append(number)
        numbers = busy


def _attempt(made: Tuning, trial: Trial, devices: int, restarts: int | None = None, patient: bool = True) -> int:
    """Train one trial and return the exit status; 0 also if it diverged, which is an outcome."""
    home = made.home(trial)
    worker = Worker(open_home(home.experiment, home.root), devices, restarts=restarts)
    failure = (worker.attempt_patiently if patient else worker.attempt)(tuning.training_of(home.experiment).slug)
    if failure:
        console.print(f"{' '.join(trial)}: {failure.reason}")
    return 2 if failure and failure.refused else 0


def _submit(made: Tuning) -> None:
    """Submit every trial that is neither done nor in the queue, as one job array."""
    home = Home(made.root, made.experiment)
    with arrays.alone(home):
        queued = _queued(home)
        known = {i: made.known(i) for i in range(made.search.count) if i not in queued}
        wanted = [i for i, trial in known.items() if trial is None or made.outcome(trial).state != "done"]
        if wanted:
            job = sbatch.tuning(made.experiment, made.root.resolve(), wanted)
            sbatch.write_scripts(made.root, [job])
            for trial in filter(None, map(known.get, wanted)):  # queued ones write their claims themselves
                claim.forgive(made.dense(trial))
            number = launch.submit(job, made.root.resolve())
            jobs.put_on_record(home, job, number)
    console.print(f"job {number}: {len(wanted)} trials" if wanted else "all trials are done or in the queue")
    console.print(f"what became of them: {command('tune', made.root, '--show')}")


def _queued(home: Home) -> set[int]:
    """Return the numbers of the trials in the queue."""
    elements = {
        f"{job.id}_{index}" if job.array else job.id: int(trial)
        for job in jobs.own(home)
        for trial, index in zip(job.tasks or map(str, job.indices), job.indices, strict=True)
    }
    return {elements[number] for number, seen in queue.ask(elements).items() if seen.live}


def _tell(made: Tuning, as_json: bool) -> None:
    found = made.outcomes()
    if as_json:
        return print_json([asdict(one) | {"folder": str(one.folder)} for one in found])
    table = Table("trial", "state", made.search.metric, "results")
    for one in found:
        value = "" if one.value is None else f"{one.value:.4f}"
        table.add_row(" ".join(one.trial), f"{one.state} {one.note}".strip(), value, one.folder.name)
    show_table(table)
    if found and found[0].value is not None:
        console.print(f"best: {' '.join(found[0].trial)}\nsweep it: {command('sweep', found[0].folder)}")
