"""Search for a better dense recipe: `lottery tune`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.table import Table

from lottery.cli.find import RESULTS, SHIPPED, Devices, ExperimentName, Json, Override, Results, find
from slurm import arrays, jobs, launch, queue, sbatch
from sweep.data import refuse_absent
from sweep.errors import Refused, command
from sweep.graph.home import Home
from sweep.progress import console
from sweep.progress import show as show_table
from sweep.tuning import agent, search
from sweep.tuning import trials as tuning
from sweep.tuning.search import Trial
from sweep.tuning.trials import Tuning
from sweep.work.worker import Worker


def tune(
    experiment: ExperimentName,
    *overrides: Override,
    search: Annotated[
        Path | None, Parameter(help="The search; experiments/sweeps/ has one for the shipped files")
    ] = None,
    on: Annotated[Literal["local", "slurm"], Parameter(help="Where: this machine, or a SLURM cluster")] = "local",
    index: Annotated[int | None, Parameter(help="Only this trial, from 0 (an array task's)")] = None,
    show: Annotated[bool, Parameter(help="Only tell what became of the trials")] = False,
    devices: Devices = 0,
    results: Results = RESULTS,
    json_: Json = False,
) -> int:
    """Search for a better recipe of the dense network, by validation accuracy. Run again to continue.

    EXPERIMENT may be the folder of a search (results/tune-…): overrides are then one trial of it.
    Example: lottery tune experiments/dry_run.yaml
    """
    if (Path(experiment) / "search.yaml").is_file():
        made = tuning.reopen(Path(experiment))
        if overrides:
            _refuse_strange(made, overrides)
            return _train(made, tuple(overrides), devices)
    else:
        made = _described(experiment, overrides, search, results)
    if not show:
        status = _begin(made, on, index, devices)
        if index is not None or on == "slurm" or status:
            return status
    return _tell(made, json_)


def _refuse_strange(made: Tuning, trial: tuple[str, ...]) -> None:
    """A server chooses among the search's own parameters; anything else it says is not asked for."""
    own = made.search.content["parameters"]
    for word in trial:
        if (name := word.partition("=")[0]) not in own:
            raise Refused(f"{name}: no parameter of {made.root / 'search.yaml'}; expected {', '.join(own)}")


def _described(experiment: str, overrides: tuple[str, ...], path: Path | None, results: Path) -> Tuning:
    """The search for an experiment file; all that may be refused is refused before anything is written."""
    found, _ = find(experiment, overrides, results)
    refuse_absent(found.data)
    path = path or SHIPPED / "sweeps" / f"{found.name}.yaml"
    made = tuning.describe(found, search.read(path), results)
    plan = search.trials(made.search, found) if made.search.method != "bayes" else []
    for trial in plan:
        find(experiment, (*overrides, *trial), results)
    return made


def _begin(made: Tuning, on: str, index: int | None, devices: int) -> int:
    led = agent.led_by_server(made)
    plan = [] if led else search.trials(made.search, made.experiment)
    tuning.create(made)
    if led:
        agent.sweep_id(made)  # one for all agents
    if led and (index is not None or on == "local"):
        return _follow(made, devices, None if index is None else 1)
    if index is not None:
        if not 0 <= index < len(plan):
            raise Refused(f"--index {index}: expected 0 to {len(plan) - 1}")
        return _train(made, plan[index], devices, made.experiment.cluster.restarts)
    if on == "slurm":
        return _submit(made, plan)
    for number, trial in enumerate(plan, 1):
        console.print(f"trial {number} of {len(plan)}: {' '.join(trial)}")
        _train(made, trial, devices)
    return 0


def _follow(made: Tuning, devices: int, count: int | None) -> int:
    """Trials that the server hands out, so many or all; first those that were begun and did not end."""
    restarts = made.experiment.cluster.restarts if count else None
    behind = made.left_behind()
    for one in behind:
        with one.known_to_wandb():
            if status := _train(made, one.trial, devices, restarts):
                return status
    rest = count - len(behind) if count else _asked_for(made) - len(made.ended())
    return agent.run_agent(made, rest) if rest > 0 else 0


def _asked_for(made: Tuning) -> int:
    """Trials in all, where wandb's server leads."""
    return int(made.search.content.get("run_cap") or 0) or len(search.trials(made.search, made.experiment))


def _train(made: Tuning, trial: Trial, devices: int, restarts: int | None = None) -> int:
    """One trial; that it diverges is an answer too."""
    home = made.begin(trial)
    failure = Worker(home, devices, restarts=restarts).attempt_patiently(tuning.training_of(home.experiment).slug)
    if failure:
        console.print(f"{' '.join(trial)}: {failure.reason}")
    return 2 if failure and failure.refused else 0


def _submit(made: Tuning, plan: list[Trial]) -> int:
    """Every trial that is neither done nor in the queue, as an element of one job array."""
    home = Home(made.root, made.experiment)
    with arrays.alone(home):
        trials = elements_to_submit(made, plan, _queued(home))
        if trials:
            job = sbatch.tuning(made.experiment, made.root.resolve(), trials)
            sbatch.write_scripts(made.root, [job])
            # no others: a trial that runs writes its claim itself
            own = [one.trial for one in made.unfinished() if one.element in map(str, trials)]
            for trial in [plan[i] for i in trials] if plan else own:
                made.forgive(trial)
            number = launch.submit(job, made.root.resolve())
            jobs.put_on_record(home, job, number)
    console.print(f"job {number}: {len(trials)} trials" if trials else "all trials are done or in the queue")
    console.print(f"what became of them: {command('tune', made.root, '--show')}")
    return 0


def _queued(home: Home) -> set[int]:
    """The array elements that wait or run."""
    elements = {
        f"{job.id}_{index}" if job.array else job.id: int(trial)
        for job in jobs.own(home)
        for trial, index in zip(job.tasks or map(str, job.indices), job.indices, strict=True)
    }
    return {elements[number] for number, seen in queue.ask(elements).items() if seen.live}


def elements_to_submit(made: Tuning, plan: list[Trial], queued: set[int]) -> list[int]:
    """Numbers of the trials that are neither done nor in the queue. `plan` is empty where wandb's server leads."""
    if plan:
        return [i for i, trial in enumerate(plan) if i not in queued and made.outcome(trial).state != "done"]
    # the server says which trial an element gets; only how many are to come is known here
    count = _asked_for(made)
    ended = made.ended()
    over, begun = {one.element for one in ended}, {one.element for one in made.unfinished()}
    free = [i for i in range(count) if i not in queued and str(i) not in over]
    free.sort(key=lambda i: str(i) not in begun)  # first those that have a trial to go on with
    return sorted(free[: max(0, count - len(queued) - len(ended))])


def _tell(made: Tuning, as_json: bool) -> int:
    found = made.outcomes()
    if as_json:
        print(json.dumps([dataclasses.asdict(one) | {"folder": str(one.folder)} for one in found], indent=1))
        return 0
    table = Table("trial", "state", made.search.metric, "results")
    for one in found:
        value = "" if one.value is None else f"{one.value:.4f}"
        table.add_row(" ".join(one.trial), f"{one.state} {one.note}".strip(), value, one.folder.name)
    show_table(table)
    if found and found[0].value is not None:
        console.print(f"best: {' '.join(found[0].trial)}\nsweep it: {command('sweep', found[0].folder)}")
    return 0
