"""Commands that look and tell. None of them loads TensorFlow."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from statistics import mean
from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from slurm import arrays, sbatch
from slurm.sbatch import Job
from slurm.status import Standing, seconds_left
from slurm.status import states as where_it_stands
from sweep import progress
from sweep.cli.find import RESULTS, On, Override, Results, read_home
from sweep.errors import Refused
from sweep.experiment import END
from sweep.graph.home import Home
from sweep.graph.plan import levels
from sweep.graph.state import missing, predicted_seconds
from sweep.graph.training import Mask, Training
from sweep.progress import console, duration
from sweep.report.verdict import MARGIN, answer, rule, verdicts
from sweep.training.schedule import peak_rate

WATCH_SECONDS = 5.0
Json = Annotated[bool, Parameter(name="--json", help="For a script: JSON instead of a table")]


@dataclass(frozen=True)
class Planned:
    """One row of the plan."""

    task: str
    training: str  # its name in the pool
    kind: str
    generation: int
    rewind: str
    epochs: float
    state: str
    seconds: float | None  # None before the dense run was measured


def plan(
    experiment: str,
    *overrides: Override,
    on: On = "local",
    json_: Json = False,
    results: Results = RESULTS,
) -> int:
    """The trainings of a sweep in the order they are handed out, what is done of them, their predicted time.

    With --on slurm, the job scripts too.
    Example: lottery plan experiments/imagenet_mobilenet_v2.yaml --on slurm
    """
    home = read_home(experiment, overrides, results)
    cluster = home.experiment.cluster
    predicted = predicted_seconds(home, cluster.gpus_per_cell) or {}
    open_ = {training.name for training in missing(home)}
    rows = [
        Planned(
            task=training.slug,
            training=training.name,
            kind=training.kind,
            generation=training.generation,
            rewind=str(training.begin),
            epochs=training.epochs,
            state="missing" if training.name in open_ else "done",
            seconds=predicted.get(training.slug),
        )
        for training in home.graph
    ]
    to_come = [row for row in rows if row.state == "missing"]
    seconds = [row.seconds for row in to_come if row.seconds is not None]
    # no order of the tickets can end sooner
    bound = max(sum(seconds) / sbatch.together(cluster), *seconds) if seconds else None
    if json_:
        found = {"folder": str(home.root), "at_least_seconds": bound, "trainings": [asdict(row) for row in rows]}
        print(json.dumps(found, indent=1))
        return 0
    table = Table("training", "generation", "epochs", "", "predicted")
    for row in rows:
        length = duration(row.seconds) if row.seconds else "–"
        table.add_row(row.task, str(row.generation), f"{row.epochs:g}", row.state, length)
    progress.show(table)
    epochs = sum(row.epochs for row in to_come)
    said = f"{len(rows)} trainings, {len(rows) - len(to_come)} of them done; {epochs:g} epochs to train"
    if bound is not None:
        said += (
            f": {duration(sum(seconds))} one after the other at the dense run's speed; at least {duration(bound)} with "
            f"{sbatch.together(cluster)} at a time (cluster: of the experiment)"
        )
    elif to_come:
        said += "; times are predicted once the dense run has been measured"
    console.print(said)
    _say_replays(home)
    if on == "slurm":
        scripts(home, arrays.preview(home))
    return 0


def _say_replays(home: Home) -> None:
    """Finished trainings that did not keep a point this experiment starts from."""
    for training in home.graph:
        if points := home.missing_points(training):
            words = ", ".join(map(str, points))
            console.print(
                f"{training.slug}: its weights at {words} were not kept; it will be trained again up to there"
            )


def scripts(home: Home, chain: list[Job]) -> None:
    """The job scripts as they are submitted, and the commands that would do it by hand."""
    for job in chain:
        console.print(f"--- {home.root / 'slurm' / job.name}.sh\n{job.text}")
    console.print(f"submitted by:\n{sbatch.commands(home.root, chain)}" if chain else "nothing is missing")


def status(
    experiment: str,
    *overrides: Override,
    watch: Annotated[bool, Parameter(help="Again and again, until nothing waits or runs")] = False,
    json_: Json = False,
    results: Results = RESULTS,
) -> int:
    """Where every training of the sweep stands, from its files and, where it was submitted, from SLURM.

    Example: lottery status dry_run
    """
    home = read_home(experiment, overrides, results)
    standing = where_it_stands(home)
    if json_:
        print(json.dumps([asdict(state) for state in standing.tasks], indent=1))
        return 0
    if watch:
        return _watch(home)
    _show_standing(home, standing)
    return 0


def _watch(home: Home) -> int:
    """On a terminal the table stays in place; elsewhere, a line now and then."""
    while True:
        standing = where_it_stands(home)
        if console.is_terminal:
            console.clear()
            _show_standing(home, standing)
        else:
            console.print(_summary(home, standing))
        if not standing.silence and not any(state.state in ("waiting", "running") for state in standing.tasks):
            return 0
        time.sleep(WATCH_SECONDS)


def _show_standing(home: Home, standing: Standing) -> None:
    table = Table("training", "state", "epoch", "test accuracy", "")
    for state in standing.tasks:
        accuracy = f"{state.top1:.2%}" if state.top1 is not None else ""
        notes = [state.note] if state.note else []
        notes += [f"{duration(state.seconds_left)} left"] if state.seconds_left is not None else []
        notes += [f"begun {state.starts} times"] if state.starts > 1 else []
        epoch = f"{state.epoch}/{home.experiment.recipe.epochs}"
        table.add_row(state.task, state.state, epoch, accuracy, "; ".join(notes))
    progress.show(table)
    console.print(_summary(home, standing))


def _summary(home: Home, standing: Standing) -> str:
    counts = Counter(state.state for state in standing.tasks)
    parts = [
        f"{counts[word]} {word}" for word in ("done", "running", "begun", "waiting", "lost", "failed") if counts[word]
    ]
    again = sum(state.starts - 1 for state in standing.tasks if state.starts > 1)
    parts += [f"begun again {again} times"] if again else []
    parts += [f"{standing.nodes} nodes in use"] if standing.nodes else []
    left = seconds_left(home, standing.tasks)
    if left:
        end = datetime.now() + timedelta(seconds=left)
        parts.append(f"end not before {end:%Y-%m-%d %H:%M} ({duration(left)})")
    return ", ".join(parts) + f"  ({home.root})" + (f"\n{standing.silence}" if standing.silence else "")


def weights(
    experiment: str,
    *overrides: Override,
    seed: int = 0,
    layers: Annotated[bool, Parameter(help="Every kernel too")] = False,
    json_: Json = False,
    results: Results = RESULTS,
) -> int:
    """Statistics of the dense run's final weights: prunable ones and all, side by side; per kernel on request.

    Example: lottery weights dry_run --layers
    """
    from sweep.graph.weights import histogram, weight_statistics
    from sweep.report.figures import save, weight_figure

    home = read_home(experiment, overrides, results)
    if seed not in home.experiment.seeds:
        raise Refused(f"--seed {seed}: expected one of the experiment's seeds {list(home.experiment.seeds)}")
    training = home.training(f"dense-seed{seed}")
    found = weight_statistics(home, training, layers)
    if json_:
        print(json.dumps(found, indent=1))
        return 0
    columns = list(found) if not layers else ["prunable", "all"]
    table = Table("", *(f"{name} weights" for name in columns))
    for key in found["all"]:
        table.add_row(key, *(_number(found[name][key]) for name in columns))
    progress.show(table)
    if layers:
        wanted = ("count", "zeros", "|w| q0.5", "|w| q0.9", "|w| q0.99", "max")
        table = Table("kernel", *wanted)
        for name, values in found.items():
            if name not in ("prunable", "all"):
                table.add_row(name, *(_number(values[key]) for key in wanted))
        progress.show(table)
    paths = save(
        weight_figure(histogram(home, training), f"{home.experiment.name}, seed {seed}"),
        home.report / f"weights-seed{seed}",
    )
    console.print("figure: " + ", ".join(map(str, paths)))
    return 0


def report(
    experiment: str,
    *overrides: Override,
    margin: Annotated[float, Parameter(help="Points of accuracy that a winning ticket may lose")] = 100 * MARGIN,
    json_: Json = False,
    results: Results = RESULTS,
) -> int:
    """The page report.html, results.csv, a LaTeX table, figures as PNG and SVG; of an unfinished sweep, what is there.

    Example: lottery report dry_run
    """
    home = read_home(experiment, overrides, results)
    if not (home.root / "experiment.yaml").exists():
        raise Refused(f"{home.root}: nothing there yet; lottery sweep {experiment} makes it")
    if json_:
        from sweep.graph.results import collect

        print(json.dumps([asdict(row) for row in collect(home)], indent=1))
        return 0
    if margin < 0:
        raise Refused(f"--margin {margin:g}: expected points of accuracy, 0 or more")
    write_and_list(home, quiet=False, margin=margin / 100)
    return 0


# What several commands say -----------------------------------------------------------------------------------------


def method(home: Home) -> str:
    """The sweep in the words of the method, before it starts."""
    experiment = home.experiment
    recipe, prune = experiment.recipe, experiment.prune
    scaled = (
        f" (scaled from {recipe.learning_rate:g} at batch {recipe.reference_batch})" if recipe.reference_batch else ""
    )
    kinds = Counter(training.kind for training in home.graph)
    controls = ", ".join(f"{n} {kind}" for kind, n in kinds.items() if kind not in ("dense", "ticket")) or "none"
    marks = ", ".join(str(level) for level in levels(prune))
    points = ", ".join(map(str, prune.rewind))
    return "\n".join(
        [
            f"{experiment.name}: {len(home.graph)} trainings, {len(missing(home))} of them missing",
            f"1. Dense run: {experiment.model.name} (width {experiment.model.width:g}) on {experiment.data.name}, "
            f"{recipe.epochs} epochs, batch {recipe.batch}, learning rate {peak_rate(recipe):g}{scaled}, "
            f"{recipe.schedule}. Weights are kept at {points}, at a ladder of early points and at the end.",
            f"2. Masks: the final weights of lowest {prune.score} go ({prune.scope}; {marks}). "
            "Kernels only, never biases or batch norm.",
            f"3. Tickets: mask × weights of the rewind point, trained from there to epoch {recipe.epochs}: "
            f"{kinds['ticket']} trainings. Controls: {controls}.",
            "4. Report: test accuracy at the last epoch against remaining weights.",
        ]
    )


def dense_summary(home: Home, training: Training) -> None:
    """Accuracy of a dense run and what each mask of it leaves, kernels that were emptied among it."""
    from sweep import files
    from sweep.graph.mask_file import make_mask, read_mask
    from sweep.pruning import masks

    result = files.read_json(home.folder(training) / "result.json")
    console.print(
        f"dense run, seed {training.seed}: test accuracy {result['test']['top1']:.2%}, {duration(result['seconds'])}",
        markup=False,
    )
    for level in levels(home.experiment.prune):
        mask = Mask(level, training, END, home.experiment.prune.scope, home.experiment.prune.score)
        found = read_mask(home, mask) if home.mask(mask).exists() else make_mask(home, mask)
        how = f"threshold {found.threshold:.4g}" if found.threshold is not None else "a threshold in every kernel"
        line = f"  {level}: {how}, {found.mask.sum()} of {found.mask.size} prunable weights stay"
        empty = masks.emptied(found.mask, found.network)
        if empty:
            names = ", ".join(empty[:3]) + (", …" if len(empty) > 3 else "")
            line += f"; WARNING: nothing is left of {len(empty)} kernels ({names})"
        console.print(line)


def write_and_list(home: Home, quiet: bool, margin: float = MARGIN) -> None:
    """Write the report, show its table and say where it is."""
    from sweep.graph.results import collect
    from sweep.report import write_report
    from sweep.tracking.runs import track_report

    paths = write_report(home, margin)
    track_report(home, paths)
    if quiet:
        return
    for training in home.graph.dense:
        if home.done(training) and home.snapshot(training, END).exists():
            dense_summary(home, training)
    rows = collect(home)
    found = verdicts(rows, margin)
    table = Table("remaining", "rewind", "seeds", "test accuracy", "against dense", "verdict")
    for one in found:
        difference = f"{100 * one.difference.mean:+.2f} points" if one.difference else "–"
        accuracy = f"{one.accuracy.mean:.2%}"
        accuracy += f" ± {100 * one.accuracy.half:.2f}" if one.accuracy.half is not None else ""
        table.add_row(f"{one.density:.1%}", one.rewind, str(one.accuracy.seeds), accuracy, difference, one.outcome)
    progress.show(table)
    for (kind, _, _, rewind), group in _control_groups(rows):
        scores = mean(row.test_top1 for row in group)
        console.print(f"control {kind}, {group[0].density:.1%} left, from {rewind}: {scores:.2%}")
    console.print(f"{answer(found, margin)}\n{rule(margin)}")
    open_ = [row for row in rows if row.state != "done"]
    if open_:
        console.print(f"{len(open_)} of {len(rows)} trainings are not done: lottery status {home.root}")
    console.print("report: " + ", ".join(map(str, paths)))


def _control_groups(rows: list[Any]) -> list[tuple[tuple[Any, ...], list[Any]]]:
    """Finished controls by kind, level and rewind epoch, over all seeds."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        if row.kind not in ("dense", "ticket") and row.test_top1 is not None:
            level = (row.quantile, row.threshold if row.quantile is None else None)
            groups.setdefault((row.kind, *level, row.rewind), []).append(row)
    return sorted(groups.items(), key=lambda item: (item[0][0], -item[1][0].density))


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
