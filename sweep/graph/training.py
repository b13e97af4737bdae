"""A training as a value: everything that decides its numbers, and nothing else. Its name is a hash of that value.

    Training  = model, data, recipe, seed, start, begin, rates, mask
    start     = initialization(seed) | the weights of another training at a point
    begin     = the point of the schedule where it starts
    Mask      = method (score, allocation, point), level, training it is found in, earlier mask, arrangement
    Line      = a Training that evaluates the straight line between the final weights of two others

Equal values have equal names, whichever experiment asks for them; so they share a folder and are trained once.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np

from sweep.experiment import Data, Method, Model, Recipe, identity
from sweep.experiment.controls import Arrangement
from sweep.experiment.point import BEGINNING, END, Point
from sweep.pruning.masks import Level

_identity = cache(identity)
DIGITS = 10  # of the hash in a name: 40 bits, so two of a million trainings collide with probability 0.4


@dataclass(frozen=True, eq=False)
class _Value(ABC):
    """A value compared by its digest, not by its fields: a chain of rounds holds its ancestors many times over."""

    @cached_property
    def digest(self) -> str:
        text = json.dumps(self.described(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """Return everything that decides the value's numbers, with the digests of what it comes from."""

    @property
    @abstractmethod
    def slug(self) -> str:
        """Return a readable name."""

    @property
    def stem(self) -> str:
        """Return the readable part of the name in the pool, the same in all experiments."""
        return self.slug

    @cached_property
    def name(self) -> str:
        return f"{self.stem}-{self.digest[:DIGITS]}"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Start:
    """The origin of a training's weights: an initialization, or another training at a point."""

    seed: int | None = None
    of: Training | None = None
    at: Point = END
    keeps: Literal["", "signs", "magnitudes"] = ""  # of kernels; the other part is from another initialization
    other: int | None = None  # seed of the other initialization
    given: str = ""  # digest of the file that model.weights names; empty: a random initialization

    def described(self) -> dict[str, Any]:
        out: dict[str, Any] = {"seed": self.seed} if self.of is None else {"of": self.of.digest, "at": str(self.at)}
        out |= {"weights": self.given} if self.given else {}
        return out | ({"keeps": self.keeps, "other": self.other} if self.keeps else {})


@dataclass(frozen=True, eq=False, repr=False)
class Mask(_Value):
    """The weights that are kept: those with the highest scores in the weights of a training at a point."""

    level: Level
    of: Training
    method: Method = Method()
    within: Mask | None = None  # the mask of the round before, in iterative pruning
    arrangement: Arrangement = "found"

    def described(self) -> dict[str, Any]:
        method = self.method
        out = {"level": str(self.level), "of": self.of.digest, "at": str(method.at), "allocation": method.allocation}
        out |= {"score": method.score} if method.score != "magnitude" else {}
        out |= {"within": self.within.digest} if self.within else {}
        # an earlier version pruned the smallest weights here too; its masks have the name without this
        out |= {"takes": "largest"} if self.arrangement == "inverted" and self.level.kind == "threshold" else {}
        return out | ({"arrangement": self.arrangement} if self.arrangement != "found" else {})

    @property
    def slug(self) -> str:
        score, allocation = self.method.score, self.method.allocation.replace(":", "of")
        arranged = f"-{self.arrangement}" if self.arrangement != "found" else ""
        return f"{score}-{allocation}-{self.level}-of-{self.of.stem}{arranged}"

    @cached_property
    def as_made(self) -> Mask:
        """Return the mask that is stored in a file: before positions are drawn anew."""
        return self.of_ticket if self.arrangement in ("shuffled", "random") else self

    @cached_property
    def of_ticket(self) -> Mask:
        """Return the mask of the ticket that a control belongs to."""
        return replace(self, arrangement="found")

    @cached_property
    def round(self) -> int:
        """Return the round of iterative pruning, from 1."""
        return 1 + (self.within.round if self.within else 0)

    @property
    def at_start(self) -> bool:
        """Whether the mask is found in an initialization, so that no training must be done before."""
        return self.method.at == BEGINNING and self.of.start.of is None


@dataclass(frozen=True, eq=False, repr=False)
class Training(_Value):
    """One run of the training loop, a node of the graph."""

    model: Model
    data: Data
    recipe: Recipe
    seed: int  # seed of data order and augmentation
    start: Start
    begin: Point = BEGINNING
    mask: Mask | None = None
    rates: Literal["schedule", "last"] = "schedule"  # last: the schedule's last rate throughout
    # dense, ticket, lr_rewind, finetune, child or a control: part of the name, but it decides no number. Equal values
    # must have equal kinds, which sweep.graph.plan ensures; but a dense run on the data of `transfer` is `source` in
    # that experiment and `dense` in one on these data, and both share its folder.
    kind: str = "dense"

    def described(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "model": _identity(self.model),
            "data": _identity(self.data),
            "recipe": _identity(self.recipe),
        }
        out |= {"seed": self.seed, "start": self.start.described(), "begin": str(self.begin)}
        out |= {"rates": self.rates} if self.rates != "schedule" else {}
        return out | ({"mask": self.mask.digest} if self.mask else {})

    @cached_property
    def origin(self) -> int:
        """Return the seed of the dense run that the training belongs to; its own seed may be another data order's."""
        if self.mask:
            return self.mask.of.origin
        return self.start.of.origin if self.start.of else int(self.start.seed or 0)

    @cached_property
    def slug(self) -> str:
        """Return a readable name that is unique within an experiment. `repr` of a level keeps every digit."""
        first = f"{self.kind}{_child(self)}" if self.kind == "child" else self.kind
        begin = f"-k{self.rewound}" if not self.dense else ""
        return "-".join([first, *_of_mask(self)]) + f"{begin}-seed{self.origin}"

    @property
    def stem(self) -> str:
        return self.slug.replace("source", "dense", 1) if self.kind == "source" else self.slug

    @property
    def dense(self) -> bool:
        """Whether it is a dense run, on the experiment's data or on the source's."""
        return self.kind in ("dense", "source")

    @property
    def transferred(self) -> bool:
        """Whether its mask was found on other data than it is trained on."""
        return self.mask is not None and self.mask.of.data != self.data

    @property
    def rewound(self) -> Point:
        """Return the point its weights were rewound to: there its schedule starts, except on other data."""
        return self.start.at if self.transferred and self.start.of else self.begin

    @property
    def starts(self) -> tuple[tuple[Training, Point], ...]:
        """Return the weights (training, point) of other trainings that it starts from."""
        return ((self.start.of, self.start.at),) if self.start.of else ()

    @cached_property
    def uses(self) -> tuple[tuple[Training, Point], ...]:
        """Return the weights (training, point) of others that it needs: its start, and those its mask is found in."""
        found = ((self.mask.of, self.mask.method.at),) if self.mask and not self.mask.at_start else ()
        return self.starts + found

    @cached_property
    def needs(self) -> tuple[Training, ...]:
        """Return the trainings that must be done before this one."""
        return tuple({one.name: one for one, _ in self.uses}.values())

    @cached_property
    def generation(self) -> int:
        """Return the stage: how many trainings must be done before this one, one after the other."""
        return 1 + max((one.generation for one in self.needs), default=-1)

    @property
    def epochs(self) -> float:
        """Return the number of epochs it trains; a starting point in steps counts as 0 epochs."""
        return self.recipe.epochs - (self.begin.count if self.begin.unit == "ep" else 0)


@dataclass(frozen=True, eq=False, repr=False)
class Line(Training):
    """The line between the final weights of two trainings that differ only in data order. Nothing is trained.

    All other fields are those of the first.
    """

    kind: str = "instability"
    between: tuple[Training, ...] = ()

    def described(self) -> dict[str, Any]:
        return {"line": [one.digest for one in self.between]}

    @property
    def starts(self) -> tuple[tuple[Training, Point], ...]:
        """Return the two ends of the line."""
        return tuple((one, END) for one in self.between)

    @cached_property
    def uses(self) -> tuple[tuple[Training, Point], ...]:
        return self.starts

    @property
    def epochs(self) -> float:
        return 0


Task = Training  # where it may be a line, too


def _of_mask(training: Task) -> list[str]:
    """Return the words for a mask in a training's name: method, level, round and, if not obvious, its training."""
    mask = training.mask
    if mask is None:
        return []
    words = [f"{mask.method.slug}{mask.level}"]
    if mask.within:
        # in a chain, the mask depends on how the rounds before were trained
        of = [mask.of.kind] if mask.of.kind not in ("ticket", training.kind) else []
        of += [str(mask.of.begin)] if mask.of.begin != training.begin else []
        words += [f"r{mask.round}", *of]
    return words


def _child(training: Training) -> int:
    return next((n for n in (1, 2) if derived_seed(training.origin, 1 + n) == training.seed), training.seed)


def derived_seed(seed: int, purpose: int) -> int:
    """Return a seed derived from `seed`: for a fresh initialization (1), or for two other data orders (2, 3)."""
    return int(np.random.SeedSequence([seed, purpose]).generate_state(1)[0])
