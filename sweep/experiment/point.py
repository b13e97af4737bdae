"""Points of a training: `0`, `2ep` (epochs), `500it` (optimizer steps), `end`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from sweep.experiment.forms import ONCE, Form, Mistake


class Schedule(Protocol):
    """What a point needs of a recipe."""

    @property
    def epochs(self) -> int: ...

    def steps_before(self, epoch: int, per_epoch: int) -> int: ...


@dataclass(frozen=True)
class Point:
    """A point of a training, in epochs or steps.

    >>> str(point("2ep")), str(point("500it")), str(point(0))
    ('2ep', '500it', '0')
    """

    count: int
    unit: Literal["ep", "it", "end"]

    def __str__(self) -> str:
        if self.unit == "end":
            return "end"
        return f"{self.count}{self.unit}" if self.count else "0"

    def step(self, recipe: Schedule, per_epoch: int) -> int:
        """Return the number of optimizer steps before this point; `per_epoch`: steps of an epoch of recipe.batch."""
        if self.unit == "it":
            return self.count
        return recipe.steps_before(recipe.epochs if self.unit == "end" else self.count, per_epoch)


BEGINNING, END = Point(0, "ep"), Point(0, "end")


def point(text: object) -> Point:
    """Return the point that the text names; raise Mistake if there is none."""
    if text == "end":
        return END
    if text in (0, "0") and not isinstance(text, bool):
        return BEGINNING
    found = re.fullmatch(r"([0-9]{1,9})(ep|it)", text) if isinstance(text, str) else None
    if not found:
        number = isinstance(text, int) and not isinstance(text, bool)
        raise Mistake(text, f"a point of training: {f'{text}ep or {text}it' if number else '0, 2ep, 500it or end'}")
    return Point(int(found[1]), found[2]) if int(found[1]) else BEGINNING  # type: ignore[arg-type]


Steps = Callable[[Point], int] | None  # the number of steps before a point, if it is known
WRITTEN = "0|end|[0-9]{1,9}(ep|it)"
_JSON = {"anyOf": [{"const": 0}, {"type": "string", "pattern": f"^({WRITTEN})$"}]}
Points = Annotated[tuple[Annotated[Point, Form(point, "a point of training: 0, 2ep, 500it or end", _JSON)], ...], ONCE]

# points at which every dense run keeps its weights, besides those that experiments ask for: a few megabytes each, and
# early points are often asked for later
LADDER = tuple(map(point, ("0", "100it", "200it", "500it", "1000it", "2000it", "1ep", "2ep", "5ep", "10ep")))


def in_order(points: Iterable[str], step: Steps = None) -> list[str]:
    """Return points in the order of training; if `step` of a point is not known, steps come before epochs.

    >>> in_order(["end", "10ep", "500it", "1ep", "0"])
    ['0', '500it', '1ep', '10ep', 'end']
    >>> in_order(["10ep", "500it", "1ep", "0"], lambda at: at.count * (390 if at.unit == "ep" else 1))
    ['0', '1ep', '500it', '10ep']
    >>> in_order(["390it", "1ep"], lambda at: at.count * (390 if at.unit == "ep" else 1))  # one step, one order
    ['1ep', '390it']
    """
    found = {text: point(text) for text in points}

    def place(text: str) -> tuple[int, int, str]:
        at = found[text]
        if step and at != END:
            return 0, step(at), at.unit
        return {"it": 0, "ep": int(at.count > 0), "end": 2}[at.unit], at.count, at.unit

    return sorted(found, key=place)
