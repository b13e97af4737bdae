"""Search for a better dense recipe: `lottery tune`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.table import Table

from slurm import queue, sbatch
from sweep import agent, search, tuning
from sweep.cli.find import RESULTS, SHIPPED, Devices, Override, Results, find
from sweep.cli.show import Json
from sweep.data import WANTED, place_of
from sweep.errors import Refused
from sweep.progress import console
from sweep.progress import show as show_table
from sweep.search import Trial
from sweep.tuning import Tuning
from sweep.worker import Worker


def tune(
    experiment: str,
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
            return _train(made, tuple(overrides), devices)
    else:
        made = _described(experiment, overrides, search, results)
    if not show:
        status = _begin(made, on, index, devices)
        if index is not None or on == "slurm" or status:
            return status
    return _tell(made, json_)


def _described(experiment: str, overrides: tuple[str, ...], path: Path | None, results: Path) -> Tuning:
    """The search for an experiment file; all that may be refused is refused before anything is written."""
    found, _ = find(experiment, overrides, results)
    if found.data.name in WANTED:
        place_of(found.data)
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
    if index is not None:
        if led:
            return agent.run_agent(made, 1)
        if not 0 <= index < len(plan):
            raise Refused(f"--index {index}: expected 0 to {len(plan) - 1}")
        return _train(made, plan[index], devices, made.experiment.cluster.restarts)
    if on == "slurm":
        return _submit(made, len(plan) or int(made.search.content.get("run_cap") or 0) or _grid_size(made))
    if led:
        return agent.run_agent(made, int(made.search.content.get("run_cap") or _grid_size(made)))
    for number, trial in enumerate(plan, 1):
        console.print(f"trial {number} of {len(plan)}: {' '.join(trial)}")
        _train(made, trial, devices)
    return 0


def _grid_size(made: Tuning) -> int:
    return len(search.trials(made.search, made.experiment))


def _train(made: Tuning, trial: Trial, devices: int, restarts: int | None = None) -> int:
    """One trial; that it diverges is an answer too."""
    home = made.begin(trial)
    failure = Worker(home, devices, restarts=restarts).attempt(tuning.task_of(home.experiment))
    if failure:
        console.print(f"{' '.join(trial)}: {failure.reason}")
    return 2 if failure and failure.refused else 0


def _submit(made: Tuning, count: int) -> int:
    """Every trial as an element of one job array."""
    script = sbatch.tuning_script(made.experiment, made.root.resolve(), count)
    (made.root / "slurm" / "logs").mkdir(parents=True, exist_ok=True)
    path = made.root / "slurm" / "tune.sh"
    path.write_text(script)
    console.print(f"job {queue.submit(str(path), [])}: {count} trials")
    console.print(f"what became of them: lottery tune {made.root} --show")
    return 0


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
        console.print(f"best: {' '.join(found[0].trial)}\nsweep it: lottery sweep {found[0].folder}")
    return 0
