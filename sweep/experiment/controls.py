"""The registry of controls: for each, what differs from the ticket that it is compared with.

sweep/graph/plan.py makes the trainings. A ticket wins only if it beats all its planned controls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Arrangement = Literal["found", "shuffled", "random", "inverted"]


@dataclass(frozen=True)
class Control:
    """One kind of control: its title and what differs from the ticket."""

    title: str  # title of its curve; {k} is the rewind point
    doubt: str  # what a ticket is no better than if it does not beat this control
    fresh: bool = False  # whether it starts from another initialization
    once: bool = False  # whether it trains the whole schedule, so that one serves all rewind points
    keeps: Literal["", "signs", "magnitudes"] = ""  # kept of the ticket's weights; the rest is newly initialized
    arrangement: Arrangement = "found"  # positions of the kept weights: as in the ticket's mask, or changed


CONTROLS = {
    "fresh": Control("fresh initialization", "fresh initialization", fresh=True, once=True),
    "fresh_short": Control(
        "fresh initialization, epochs from {k}", "fresh initialization over the same epochs", fresh=True
    ),
    "shuffled": Control("shuffled mask, from {k}", "shuffled mask", arrangement="shuffled"),
    "random": Control("random mask, from {k}", "random mask", arrangement="random"),
    "inverted": Control("inverted mask, from {k}", "inverted mask", arrangement="inverted"),
    "same_signs": Control("signs of {k}, fresh magnitudes", "fresh magnitudes", keeps="signs"),
    "same_magnitudes": Control("magnitudes of {k}, fresh signs", "fresh signs", keeps="magnitudes"),
}
