"""Messages that several commands print."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping

from sweep.experiment.point import END, in_order
from sweep.graph.home import Home
from sweep.graph.plan import levels
from sweep.graph.state import missing
from sweep.training.schedule import peak_rate
from sweep.work.worker import Failure

NAMED = 10  # entries shown of a long list
BY_ITSELF = ("dense", "source", "ticket", "child", "instability")


def failed(failures: list[Failure], skipped: Mapping[str, str] = {}) -> int:
    """Print which trainings failed or were skipped, and why; return the exit status."""
    for word, reasons in (("FAILED", {one.task: one.reason for one in failures}), ("SKIPPED", skipped)):
        for task, reason in list(reasons.items())[:NAMED]:
            print(f"lottery: {word} {task}: {reason}", file=sys.stderr)
        if len(reasons) > NAMED:
            print(f"lottery: {word} {len(reasons) - NAMED} more; lottery status lists them", file=sys.stderr)
    return 2 if any(failure.refused for failure in failures) else 1 if failures or skipped else 0


def method(home: Home) -> str:
    """Return a description of the sweep's steps, printed before it starts."""
    experiment = home.experiment
    recipe, prune = experiment.recipe, experiment.prune
    scaled = (
        f" (scaled from {recipe.learning_rate:g} at batch {recipe.reference_batch})" if recipe.reference_batch else ""
    )
    batch = ", ".join(map(str, recipe.stages)) or recipe.batch
    scaled += ", in proportion in the other stages" if recipe.stages and recipe.reference_batch else ""
    kinds = Counter(training.kind for training in home.graph)
    tickets = kinds["ticket"]
    beside = ", ".join(f"{n} {kind}" for kind, n in kinds.items() if kind not in BY_ITSELF)
    marks = ", ".join(str(level) for level in dict.fromkeys(lv for how in prune.methods for lv in levels(prune, how)))
    kept = {str(at) for one in home.graph.sources for at in home.graph.points_of(one)} - {str(END)}
    points = ", ".join(in_order(kept | {"0"}))
    how = "; ".join(map(str, prune.methods)) + (f", in {prune.rounds} rounds" if prune.rounds > 1 else "")
    steps = [
        f"Dense run: {experiment.model.name} (width {experiment.model.width:g}) on {experiment.data.name}, "
        f"{recipe.epochs} epochs, batch {batch}, learning rate {peak_rate(recipe, recipe.batch):g}{scaled}, "
        f"{recipe.schedule}. Weights are kept at {points}, at extra early checkpoints and at the end.",
    ]
    if experiment.transfer.source:
        there = experiment.transfer
        steps.append(
            f"Source ({there.source}): the same network on {there.data.name}, {there.recipe.epochs} epochs. Masks and "
            "rewound weights are its; tickets are trained on the data above, for all epochs."
        )
    if marks:
        steps += [
            f"Masks: the weights of lowest score go ({how}: {marks}). Kernels only, never biases or batch norm.",
            f"Tickets: mask × weights of the rewind point, trained from there to epoch {recipe.epochs}: "
            f"{tickets} training{'' if tickets == 1 else 's'}{f'; beside them {beside}' if beside else ''}.",
        ]
    if kinds["instability"]:
        begins = ", ".join(map(str, prune.instability))
        whose = "the dense network" + (" and of tickets" if prune.instability_quantiles else "")
        steps.append(
            f"Instability: from {begins} two children each of {whose} see the data in other orders; the error on the "
            "straight line between where they end."
        )
    steps.append(f"Report{': test accuracy at the last epoch against remaining weights' if marks else ''}.")
    head = f"{experiment.name}: {len(home.graph)} trainings, {len(missing(home))} of them missing"
    return "\n".join([head, *(f"{number}. {step}" for number, step in enumerate(steps, 1))])
