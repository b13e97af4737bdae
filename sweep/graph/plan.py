"""From an experiment to its graph: the trainings it asks for, in the order in which they are handed out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sweep.errors import Refused
from sweep.experiment import BEGINNING, END, Experiment, Point, Prune
from sweep.experiment.file import suggestion
from sweep.graph.training import Mask, Start, Training
from sweep.pruning.masks import Level


@dataclass(frozen=True)
class Graph:
    """The trainings of an experiment: generation by generation, the longest first."""

    trainings: tuple[Training, ...]

    @cached_property
    def _by_task(self) -> dict[str, Training]:
        return {training.slug: training for training in self.trainings}

    @cached_property
    def _points(self) -> dict[str, list[Point]]:
        out: dict[str, dict[Point, None]] = {}
        for training in self.trainings:
            for of, at in uses(training):
                out.setdefault(of.name, {})[at] = None
        return {name: list(points) for name, points in out.items()}

    def __iter__(self) -> Iterator[Training]:
        return iter(self.trainings)

    def __len__(self) -> int:
        return len(self.trainings)

    def __getitem__(self, task: str) -> Training:
        """By its slug, or by its full name."""
        found = self._by_task.get(task) or self._by_task.get(task.rpartition("-")[0])
        if found is None or task not in (found.slug, found.name):
            raise Refused(f"no training {task!r} in this experiment{suggestion(task, self._by_task)}")
        return found

    @property
    def dense(self) -> list[Training]:
        return [training for training in self.trainings if training.mask is None]

    def points_of(self, training: Training) -> list[Point]:
        """The points of it that others start from or take their masks from."""
        return self._points.get(training.name, [])


def uses(training: Training) -> Iterator[tuple[Training, Point]]:
    """The weights it needs of other trainings."""
    if training.start.of is not None:
        yield training.start.of, training.start.at
    if training.mask is not None:
        yield training.mask.of, training.mask.at


def levels(prune: Prune) -> list[Level]:
    """All pruning levels, quantiles first."""
    return [Level("quantile", q) for q in prune.quantiles] + [Level("threshold", t) for t in prune.thresholds]


def graph_of(experiment: Experiment) -> Graph:
    """Dense runs, tickets and controls; the tail of a sweep is short when its longest trainings come first."""
    trainings = [one for seed in experiment.seeds for one in _of_seed(experiment, seed)]
    once = {training.name: training for training in trainings}
    return Graph(tuple(sorted(once.values(), key=lambda training: (training.generation, -training.epochs))))


def dense_of(experiment: Experiment, seed: int) -> Training:
    return Training(experiment.model, experiment.data, experiment.recipe, seed, Start(seed=seed))


def _of_seed(experiment: Experiment, seed: int) -> Iterator[Training]:
    prune, dense = experiment.prune, dense_of(experiment, seed)
    yield dense
    masks = {level: Mask(level, dense, END, prune.scope, prune.score) for level in levels(prune)}
    for mask in masks.values():
        yield from (_ticket(dense, mask, k) for k in prune.rewind)
    some = [Level("quantile", q) for q in prune.control_quantiles] or list(masks)
    for kind in prune.controls:
        for level in some:
            # a fresh initialization has no past to rewind to: it trains from the beginning
            points = (BEGINNING,) if kind == "fresh" else prune.control_rewind or prune.rewind
            yield from (_control(kind, _ticket(dense, masks[level], k)) for k in points)


def _ticket(dense: Training, mask: Mask, k: Point) -> Training:
    """The mask on the weights of the rewind point, with the schedule from there."""
    start = dense.start if k == BEGINNING else Start(of=dense, at=k)
    return replace(dense, start=start, begin=k, mask=mask)


def _control(kind: str, ticket: Training) -> Training:
    """Differs from its ticket in one thing."""
    mask = ticket.mask
    assert mask is not None
    if kind == "fresh":
        return replace(ticket, start=Start(seed=fresh_seed(ticket.seed)))
    if kind == "lr_rewind":  # the final weights, trained over the same epochs with the same rates
        return replace(ticket, start=Start(of=mask.of, at=END))
    return replace(ticket, mask=replace(mask, arrangement=kind))  # type: ignore[arg-type]


def fresh_seed(seed: int) -> int:
    """Of an initialization that no seed of a sweep has."""
    return int(np.random.SeedSequence([seed, 1]).generate_state(1)[0])
