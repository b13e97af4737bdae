"""Figures that are measured and told, and fail nothing: clocks on a shared machine are noisy."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from sweep.hardware import hardware

RECORD = Path("build") / "perf.json"


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    relation: str  # "at most" or "at least"
    target: float

    @property
    def met(self) -> bool:
        return self.value <= self.target if self.relation == "at most" else self.value >= self.target


FIGURES: list[Figure] = []
Told = Callable[..., None]


@pytest.fixture
def figure() -> Told:
    """`figure("a step", 3.1, "ms", at_most=4)`: a row of the table."""

    def told(name: str, value: float, unit: str, at_most: float | None = None, at_least: float | None = None) -> None:
        relation, target = ("at most", at_most) if at_most is not None else ("at least", at_least)
        assert target is not None, "a figure without a target says nothing"
        FIGURES.append(Figure(name, value, unit, relation, target))

    return told


def machine() -> str:
    return f"{', '.join(dict.fromkeys((hardware(), f'{os.cpu_count()} cores {platform.machine()}')))}, {date.today()}"


def pytest_terminal_summary(terminalreporter) -> None:
    if not FIGURES:
        return
    table = Table("figure", "measured", "target", "met", title=f"make perf: {machine()}")
    for one in FIGURES:
        target = f"{one.relation} {one.target:g} {one.unit}"
        table.add_row(one.name, f"{one.value:.3g} {one.unit}", target, "yes" if one.met else "NO")
    Console(width=120).print(table)
    RECORD.parent.mkdir(exist_ok=True)
    found = {"machine": machine(), "figures": [asdict(one) | {"met": one.met} for one in FIGURES]}
    RECORD.write_text(json.dumps(found, indent=1) + "\n")
    terminalreporter.write_line(f"{sum(one.met for one in FIGURES)} of {len(FIGURES)} targets met; {RECORD}")
