"""The graph of an experiment: the trainings it asks for, in the order in which they are started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from sweep.errors import Refused, suggestion
from sweep.experiment import BEGINNING, END, Experiment, Method, Point, Prune
from sweep.experiment.controls import CONTROLS
from sweep.graph.training import Line, Mask, Start, Task, Training, derived_seed
from sweep.pruning.masks import Level


@dataclass(frozen=True)
class Graph:
    """The trainings of an experiment, stage by stage, the longest first."""

    trainings: tuple[Task, ...]

    @cached_property
    def _by_task(self) -> dict[str, Task]:
        return {word: training for training in self.trainings for word in (training.slug, training.name)}

    @cached_property
    def _points(self) -> dict[str, list[Point]]:
        out: dict[str, dict[Point, None]] = {}
        for training in self.trainings:
            for of, at in training.uses:
                out.setdefault(of.name, {})[at] = None
        return {name: list(points) for name, points in out.items()}

    def __iter__(self) -> Iterator[Task]:
        return iter(self.trainings)

    def __len__(self) -> int:
        return len(self.trainings)

    def __getitem__(self, task: str) -> Task:
        """Return a training by its slug or by its full name."""
        if task not in self._by_task:
            slugs = [training.slug for training in self.trainings]
            raise Refused(f"no training {task!r} in this experiment{suggestion(task, slugs)}")
        return self._by_task[task]

    @property
    def dense(self) -> list[Training]:
        """Return the dense runs on the experiment's data, with which tickets are compared."""
        return [one for one in self.trainings if one.kind == "dense"]

    @property
    def sources(self) -> list[Training]:
        """Return the dense runs that masks and rewound weights come from: those of `transfer`, or `dense`."""
        return [one for one in self.trainings if one.kind == "source"] or self.dense

    def points_of(self, training: Task) -> list[Point]:
        """Return the points of a training that others start from or find their masks in."""
        return self._points.get(training.name, [])


def levels(prune: Prune, method: Method) -> list[Level]:
    """Return the levels of a method, quantiles first: its own, or the experiment's; one per round if iterative."""
    if method.own_quantile is not None:
        return [Level("quantile", method.own_quantile)]
    quantiles = [Level("quantile", q, prune.budget) for q in prune.each_quantile]
    return quantiles + [Level("threshold", t) for t in prune.thresholds]


def graph_of(experiment: Experiment) -> Graph:
    """Return dense runs, tickets and controls, the longest first in each stage, so that the sweep ends evenly."""
    trainings = [one for seed in experiment.seeds for one in _of_seed(experiment, seed)]
    once = {training.name: training for training in trainings}
    return Graph(tuple(sorted(once.values(), key=lambda training: (training.generation, -training.epochs))))


def dense_of(experiment: Experiment, seed: int) -> Training:
    start = Start(seed=seed, given=experiment.model.weights_digest)
    return Training(experiment.model, experiment.data, experiment.recipe, seed, start)


def masks_of(experiment: Experiment, dense: Training) -> list[Mask]:
    """Return the masks of one-shot pruning of a dense run."""
    prune = experiment.prune
    return [Mask(level, dense, method) for method in prune.methods for level in levels(prune, method)]


def _of_seed(experiment: Experiment, seed: int) -> Iterator[Task]:
    prune, transfer, dense = experiment.prune, experiment.transfer, dense_of(experiment, seed)
    yield dense
    source = dense  # which masks and rewound weights come from
    if transfer.source:
        source = replace(dense, data=transfer.data, recipe=transfer.recipe, kind="source")
        yield source
    yield from (_lr_rewind(dense, None, k) for k in prune.dense_lr_rewind)
    tickets: list[Training] = []
    if prune.rounds == 1:
        for mask in masks_of(experiment, source):
            tickets += (_ticket(dense, mask, k) for k in prune.rewind)
            yield from (_lr_rewind(dense, mask, k) for k in prune.lr_rewind)
            yield from (_finetune(dense, mask, k) for k in prune.finetune)
    else:
        for method in prune.methods:
            tickets += (one for k in prune.rewind for one in _chain(prune, dense, method, k, _ticket))
            for points, retrain in ((prune.lr_rewind, _lr_rewind), (prune.finetune, _finetune)):
                yield from (one for k in points for one in _chain(prune, dense, method, k, retrain))
    yield from tickets
    for ticket in tickets:
        assert ticket.mask is not None
        level = ticket.mask.level
        chosen = not prune.control_quantiles or (level.kind == "quantile" and level.value in prune.control_quantiles)
        if chosen:
            yield from (
                _control(kind, ticket)
                for kind in prune.controls
                if CONTROLS[kind].once or ticket.rewound in (prune.control_rewind or prune.rewind)
            )
    for k in prune.instability:
        yield from _instability(_ticket(dense, None, k))
        # one-shot masks do not depend on the rewind point; in rounds, the mask is that of the ticket rewound to k
        found = (
            masks_of(experiment, dense) if prune.rounds == 1 else [t.mask for t in tickets if t.mask and t.begin == k]
        )
        for mask in found:
            if mask.level.kind == "quantile" and mask.level.value in prune.instability_quantiles:
                yield from _instability(_ticket(dense, mask, k))


Retrain = Callable[[Training, Mask, Point], Training]


def _chain(prune: Prune, dense: Training, method: Method, k: Point, retrain: Retrain) -> Iterator[Training]:
    """Yield the trainings of iterative pruning: each round's mask is found in the final weights of the round before."""
    before, within = dense, None
    for level in levels(prune, method):
        mask = Mask(level, before, method, within)
        before, within = retrain(dense, mask, k), mask
        yield before


def _ticket(dense: Training, mask: Mask | None, k: Point) -> Training:
    """Return a ticket: mask × the dense run's weights at the rewind point k, trained with the schedule from there.

    If the mask was found on other data: the weights of that run, with the whole schedule (Morcos et al. 2019).
    """
    source = mask.of if mask and mask.of.kind == "source" else dense
    start = source.start if k == BEGINNING else Start(of=source, at=k)
    return replace(dense, start=start, begin=k if source is dense else BEGINNING, mask=mask, kind="ticket")


def _lr_rewind(dense: Training, mask: Mask | None, k: Point) -> Training:
    """Return a training by learning-rate rewinding: final weights × mask, with the schedule from k.

    Without a mask: the dense network trained for as long, a baseline with equal training time.
    """
    return replace(dense, start=Start(of=mask.of if mask else dense, at=END), begin=k, mask=mask, kind="lr_rewind")


def _finetune(dense: Training, mask: Mask, k: Point) -> Training:
    """Return a fine-tuning: final weights × mask, for as long as from k, at the schedule's last rate."""
    return replace(_lr_rewind(dense, mask, k), rates="last", kind="finetune")


def _control(kind: str, ticket: Training) -> Training:
    """Return the control of a ticket, which differs in what CONTROLS[kind] says."""
    control, mask, other = CONTROLS[kind], ticket.mask, derived_seed(ticket.seed, 1)
    assert mask is not None
    if control.fresh:
        start = Start(seed=other)
    else:
        start = replace(ticket.start, keeps=control.keeps, other=other) if control.keeps else ticket.start
    begin = BEGINNING if control.once else ticket.begin
    if kind == "fresh_short" and begin == BEGINNING:  # then both are the same training
        kind = "fresh"
    return replace(ticket, start=start, begin=begin, mask=replace(mask, arrangement=control.arrangement), kind=kind)


def _instability(ticket: Training) -> Iterator[Task]:
    """Yield two trainings from one point with different data orders, and the line between their final weights."""
    one, other = (replace(ticket, seed=derived_seed(ticket.seed, purpose), kind="child") for purpose in (2, 3))
    line = Line(one.model, one.data, one.recipe, one.seed, one.start, one.begin, one.mask, between=(one, other))
    yield from (one, other, line)
