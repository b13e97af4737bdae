"""A training as a value: everything that decides its numbers, and nothing else. Its name is a hash of that value.

    Training  = model, data, recipe, seed, start, begin, mask
    start     = initialization(seed) | the weights of another training at a point
    begin     = the point of the schedule it takes up
    Mask      = score, allocation, level, of which training at which point, arrangement

Equal values have equal names, whichever experiment asks for them; so they share a folder and are trained once.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Literal

from sweep.experiment import Data, Model, Recipe, identity
from sweep.experiment.point import BEGINNING, END, Point
from sweep.pruning.masks import Level

Arrangement = Literal["found", "shuffled", "random"]
DIGITS = 10  # of the hash in a name: 40 bits, so that a pool of a million trainings meets itself once in two


@dataclass(frozen=True, eq=False)
class _Value(ABC):
    """Compared by what it says. A chain of rounds holds its ancestors many times over, so never field by field."""

    @cached_property
    def digest(self) -> str:
        text = json.dumps(self.described(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """What decides its numbers; of what it comes from, the digest."""

    @property
    @abstractmethod
    def slug(self) -> str:
        """A readable word for it."""

    @cached_property
    def name(self) -> str:
        return f"{self.slug}-{self.digest[:DIGITS]}"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, repr=False)
class Start(_Value):
    """Where the weights come from: an initialization, or another training."""

    seed: int | None = None
    of: Training | None = None
    at: Point = END

    def described(self) -> dict[str, Any]:
        if self.of is None:
            return {"seed": self.seed}
        return {"of": self.of.digest, "at": str(self.at)}

    @property
    def slug(self) -> str:
        return f"seed{self.seed}" if self.of is None else f"{self.of.slug}@{self.at}"


@dataclass(frozen=True, eq=False, repr=False)
class Mask(_Value):
    """Which weights stay: those scored above a threshold in the weights of a training at a point."""

    level: Level
    of: Training
    at: Point = END
    allocation: str = "global"  # one ranking over all kernels, or layerwise: one in each
    score: str = "magnitude"  # what is ranked; see sweep.pruning.scores
    arrangement: Arrangement = "found"

    def described(self) -> dict[str, Any]:
        out = {"level": str(self.level), "of": self.of.digest, "at": str(self.at), "allocation": self.allocation}
        out |= {"score": self.score} if self.score != "magnitude" else {}
        return out | ({"arrangement": self.arrangement} if self.arrangement != "found" else {})

    @property
    def slug(self) -> str:
        arranged = f"-{self.arrangement}" if self.arrangement != "found" else ""
        return f"{self.score}-{self.allocation}-{self.level}-of-{self.of.slug}{arranged}"

    @cached_property
    def as_found(self) -> Mask:
        """The same mask before its positions were changed."""
        return replace(self, arrangement="found")


@dataclass(frozen=True, eq=False, repr=False)
class Training(_Value):
    """One run of the training loop."""

    model: Model
    data: Data
    recipe: Recipe
    seed: int  # of data order and augmentation
    start: Start
    begin: Point = BEGINNING
    mask: Mask | None = None

    def described(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "model": _identity(self.model),
            "data": _identity(self.data),
            "recipe": _identity(self.recipe),
        }
        out |= {"seed": self.seed, "start": self.start.described(), "begin": str(self.begin)}
        return out | ({"mask": self.mask.digest} if self.mask else {})

    @cached_property
    def kind(self) -> str:
        """What it is called in the field, from what it starts from and its mask."""
        if self.mask is None:
            return "dense"
        if self.mask.arrangement != "found":
            return self.mask.arrangement
        if self.start.of is None:
            return "ticket" if self.start == self.mask.of.start else "fresh"
        return "lr_rewind" if self.start.at == END else "ticket"

    @cached_property
    def slug(self) -> str:
        """Readable, and unique within an experiment. `repr` of a level keeps every digit."""
        if self.mask is None:
            return f"dense-seed{self.seed}"
        score = f"{self.mask.score}-" if self.mask.score != "magnitude" else ""
        return f"{self.kind}-{score}{self.mask.level}-k{self.begin}-seed{self.seed}"

    @cached_property
    def needs(self) -> tuple[Training, ...]:
        """The trainings that must be done before it."""
        found = [self.start.of, self.mask.of if self.mask else None]
        return tuple({one.name: one for one in found if one is not None}.values())

    @cached_property
    def generation(self) -> int:
        """How many trainings must come before it, one after the other."""
        return 1 + max((one.generation for one in self.needs), default=-1)

    @property
    def epochs(self) -> float:
        """How much of the schedule it trains; a point given in steps counts as the beginning of an epoch."""
        return self.recipe.epochs - (self.begin.count if self.begin.unit == "ep" else 0)


@cache
def _identity(part: Any) -> dict[str, Any]:
    return identity(part)
