"""The command `lottery weights`: statistics and a histogram of the weights of any training at any point."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from lottery.cli.completion import trainings
from lottery.cli.find import RESULTS, ExperimentName, Json, Results, print_json, read_home
from sweep.errors import Refused
from sweep.experiment import point
from sweep.graph.snapshot_file import read_weights
from sweep.progress import console, show
from sweep.pruning.statistics import QUANTILES, histogram, weight_statistics


def weights(
    experiment: ExperimentName,
    *words: Annotated[
        str, Parameter(help="A training, as lottery plan lists them, and fields to change", completer=trainings)
    ],
    seed: Annotated[int | None, Parameter(help="Seed of the dense run, if no training is named")] = None,
    at: Annotated[str, Parameter(help="Point: 0, 2ep, 500it or end")] = "end",
    quantiles: Annotated[tuple[float, ...], Parameter(help="From 0 to 1", consume_multiple=True)] = QUANTILES,
    layers: Annotated[bool, Parameter(help="Also every kernel")] = False,
    out: Annotated[Path | None, Parameter(help="Folder of the figure; default: the experiment's report")] = None,
    json_: Json = False,
    results: Results = RESULTS,
) -> None:
    """Show count, zeros, range, mean and quantiles of prunable and of all weights, signed and as magnitudes.

    Example: lottery weights dry_run ticket-lamp-q0.9-k0-seed0 --layers
    """
    home = read_home(experiment, tuple(word for word in words if "=" in word), results)
    named = [word for word in words if "=" not in word]
    if len(named) > 1:
        raise Refused(f"{' '.join(named)}: expected one training")
    if seed not in (None, *home.experiment.seeds):
        raise Refused(f"--seed {seed}: expected one of the experiment's seeds {list(home.experiment.seeds)}")
    if not all(0 <= q <= 1 for q in quantiles):
        raise Refused(f"--quantiles {' '.join(map(str, quantiles))}: expected numbers from 0 to 1")
    training = home.training(named[0] if named else f"dense-seed{home.experiment.seeds[0] if seed is None else seed}")
    where = point(at)
    network, at_point, _ = read_weights(home.snapshot(training, where))
    found = weight_statistics(network, at_point, layers, quantiles)
    if json_:
        return print_json(found)
    whole = ("|prunable|", "prunable", "|all|", "all")
    table = Table(f"{training.slug} at {where}", *whole)
    for key in found["all"]:
        table.add_row(key, *(_number(found[name][key]) for name in whole))
    show(table)
    if layers:
        wanted = [key for key in ("count", "zeros", "mean", "q0.6", "q0.9", "q0.99", "max") if key in found["all"]]
        table = Table("kernel, |w|", *wanted)
        for name, values in found.items():
            if name.startswith("|") and name not in whole:
                table.add_row(name.strip("|"), *(_number(values[key]) for key in wanted))
        show(table)
    from sweep.report.figures import save, weight_figure

    bins = histogram(at_point.kernels)
    title = f"{home.experiment.name}, {training.slug} at {where}"
    paths = save(weight_figure(bins, title), (out or home.report) / f"weights-{training.slug}-{where}")
    console.print("figure: " + ", ".join(map(str, paths)))


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
