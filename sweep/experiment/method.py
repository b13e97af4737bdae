"""Pruning methods as words: `score`, `score/allocation`, `score/allocation@point`.

magnitude          |θ| of the final weights, one ranking over all kernels
magnitude@0        |θ| of the initialization
magnitude/erk      |θ| of the final weights, Erdős–Rényi counts in every kernel
magnitude/2:4      two of every four along the input channels: its density is fixed
snip, synflow      at the initialization, as published
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from sweep.experiment.forms import ONCE, SOME, Form, Mistake
from sweep.experiment.point import END, WRITTEN, Point, point
from sweep.pruning.allocations import ALLOCATIONS, n_and_m
from sweep.pruning.scores import SCORES


@dataclass(frozen=True)
class Method:
    """A pruning method: a score, an allocation, and the point of training whose weights are scored.

    >>> str(method("lamp")), str(method("snip@0")), str(method("magnitude/erk@2ep"))
    ('lamp', 'snip', 'magnitude/erk@2ep')
    """

    score: str = "magnitude"
    allocation: str = "global"
    at: Point = END

    def __str__(self) -> str:
        return self.score + (f"/{self.allocation}" if self.allocation != "global" else "") + self._at("@")

    @property
    def slug(self) -> str:
        """Return the method for names of trainings, before the level; "" for global magnitude of the final weights."""
        words = [self.score] if self.score != "magnitude" or self.allocation != "global" or self._at() else []
        words += [self.allocation.replace(":", "of")] if self.allocation != "global" else []
        return "-".join(words) + self._at("-at") + ("-" if words else "")

    def _at(self, before: str = "@") -> str:
        return f"{before}{self.at}" if self.at != point(SCORES[self.score].at) else ""

    @property
    def own_quantile(self) -> float | None:
        """Return the sparsity that N:M pruning fixes, 1 − N/M, or None for other allocations."""
        pair = n_and_m(self.allocation)
        return 1 - pair[0] / pair[1] if pair else None


RIGHT = f"score, score/allocation or score@point; scores are {', '.join(SCORES)}"


def method(text: object) -> Method:
    """Return the method that the text names; raise Mistake if there is none."""
    words, _, at = text.partition("@") if isinstance(text, str) else ("", "", "")
    score, _, allocation = words.partition("/")
    allocation = allocation or "global"
    if score not in SCORES:
        raise Mistake(text, RIGHT)
    pair = n_and_m(allocation)
    if allocation not in ALLOCATIONS and not (pair and 0 < pair[0] < pair[1]):
        raise Mistake(text, f"an allocation out of {', '.join(ALLOCATIONS)} and N:M such as 2:4")
    if score == "lamp" and allocation != "global":
        raise Mistake(text, f"magnitude/{allocation}: within a kernel lamp ranks as magnitude does")
    if pair and SCORES[score].step < 1:
        raise Mistake(text, "a score that is taken once: N:M leaves no room for steps")
    return Method(score, allocation, point(at) if "@" in str(text) else point(SCORES[score].at))


_SHAPED = [f"{score}/{allocation}" for score in SCORES for allocation in ALLOCATIONS if score != "lamp"]
_N_OF_M = f"({'|'.join(ALLOCATIONS)}|[1-9][0-9]{{0,5}}:[1-9][0-9]{{0,5}})"
_JSON = {
    "anyOf": [
        {"enum": [*SCORES, *_SHAPED]},
        {"type": "string", "pattern": f"^({'|'.join(SCORES)})(/{_N_OF_M})?(@({WRITTEN}))?$"},
    ]
}
Methods = Annotated[tuple[Annotated[Method, Form(method, f"a method: {RIGHT}", _JSON)], ...], ONCE, SOME]
