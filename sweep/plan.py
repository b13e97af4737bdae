"""The plan: every training of the sweep as a cell, in the order in which they are handed out."""

from __future__ import annotations

from dataclasses import dataclass

from sweep.experiment import Experiment, Prune
from sweep.masks import Level


@dataclass(frozen=True)
class Cell:
    """One training: mask × snapshot(rewind epoch), or a control that differs from it in one thing."""

    kind: str  # ticket, fresh, shuffled, random, finetune
    level: Level
    rewind_epoch: int
    seed: int

    @property
    def slug(self) -> str:
        """Its name and folder. `repr` of the level keeps every digit, so that no two cells share it."""
        return f"{self.kind}-{self.level}-k{self.rewind_epoch}-seed{self.seed}"


def levels(prune: Prune) -> list[Level]:
    """All pruning levels, quantiles first."""
    return [Level("quantile", q) for q in prune.quantiles] + [Level("threshold", t) for t in prune.thresholds]


def cells(experiment: Experiment) -> list[Cell]:
    """All cells, longest first (a cell rewound to epoch k trains T - k epochs): the tail of a sweep is then short."""
    prune = experiment.prune
    out = [
        Cell("ticket", level, k, seed)
        for seed in experiment.seeds
        for level in levels(prune)
        for k in prune.rewind_epochs
    ]
    some_levels = [Level("quantile", q) for q in prune.control_quantiles] or levels(prune)
    some_epochs = prune.control_rewind_epochs or prune.rewind_epochs
    for kind in prune.controls:
        for seed in experiment.seeds:
            for level in some_levels:
                # a fresh initialization has no past to rewind to: it trains from epoch 0
                out += [Cell(kind, level, k, seed) for k in ((0,) if kind == "fresh" else some_epochs)]
    return sorted(out, key=lambda cell: cell.rewind_epoch)


def epochs_of(cell: Cell, experiment: Experiment) -> int:
    """How many epochs the cell trains."""
    return experiment.recipe.epochs - cell.rewind_epoch
