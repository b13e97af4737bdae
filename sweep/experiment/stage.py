"""Stages of progressive resizing with a batch each: `128px/512`, `160px/384@6ep`, `224px@16ep`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from sweep.experiment.forms import Form, Mistake

RIGHT = "PIXELSpx, PIXELSpx/BATCH or PIXELSpx/BATCH@EPOCHep, such as 160px/384@6ep"
WRITTEN = "[1-9][0-9]{0,3}px(/[1-9][0-9]{0,5})?(@[1-9][0-9]{0,6}ep)?"


@dataclass(frozen=True)
class Stage:
    """A part of training with images of one size, in batches of one size.

    >>> stage("160px/384@6ep")
    Stage(pixels=160, batch=384, begin=6)
    """

    pixels: int = 0
    batch: int = 0  # images per step; 0 = recipe.batch
    begin: int = 0  # its first epoch

    def __str__(self) -> str:
        batch, begin = f"/{self.batch}" if self.batch else "", f"@{self.begin}ep" if self.begin else ""
        return f"{self.pixels}px{batch}{begin}"


def stage(text: object) -> Stage:
    """Return the stage that the text describes; raise Mistake if it describes none."""
    if not isinstance(text, str) or not re.fullmatch(WRITTEN, text):
        raise Mistake(text, RIGHT)
    words, _, begin = text.partition("@")
    pixels, _, batch = words.partition("/")
    return Stage(int(pixels.removesuffix("px")), int(batch or 0), int(begin.removesuffix("ep") or 0))


_JSON = {"anyOf": [{"type": "string", "pattern": f"^({WRITTEN})$"}]}
Stages = tuple[Annotated[Stage, Form(stage, f"a stage: {RIGHT}", _JSON)], ...]
