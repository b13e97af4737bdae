"""The controls that an experiment can name, one line each: what differs from the ticket they stand beside.

sweep/graph/plan.py makes the training from it. A verdict counts every one of them: a ticket wins only if it beats all
that were planned beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Arrangement = Literal["found", "shuffled", "random", "inverted"]


@dataclass(frozen=True)
class Control:
    """What differs from the ticket, and how that is called."""

    title: str  # of its curve; {k} is the rewind point
    doubt: str  # what a ticket that does not beat it may be no better than
    fresh: bool = False  # another initialization
    once: bool = False  # trained from the beginning: without a past to rewind to, once for all rewind points
    keeps: Literal["", "signs", "magnitudes"] = ""  # of the ticket's weights; the rest from another initialization
    arrangement: Arrangement = "found"  # of the positions that the mask keeps


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
