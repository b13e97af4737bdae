"""The comparison of several sweeps or trainings: settings that differ, and tickets of equal density.

Seeds that two sides share are compared in pairs, because they share initialization and data order. If they share none,
or were tested on other images, the means are compared as those of independent samples (Welch 1947).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import mean, variance
from typing import Any

from sweep import files
from sweep.errors import Refused
from sweep.experiment.fields import Section, plain
from sweep.experiment.point import in_order
from sweep.graph.home import Home
from sweep.graph.results import Row, collect
from sweep.graph.training import Task
from sweep.report.intervals import accuracies, asked, density_of, estimate, grouped, minus
from sweep.report.statistics import Estimate

TEMPLATE = Path(__file__).with_name("comparison.html")


@dataclass(frozen=True)
class Key:
    """What is compared between sides: dense networks, or tickets and controls of one density and rewind point."""

    kind: str
    method: str  # empty if each side has one method, even if they differ
    density: float
    rewind: str

    def __str__(self) -> str:
        if self.kind in ("dense", "training"):
            return self.kind
        return f"{self.kind}{f' {self.method}' if self.method else ''}, {100 * self.density:.3g} %, from {self.rewind}"


@dataclass(frozen=True)
class Side:
    """One of the sweeps or trainings that are compared."""

    name: str
    settings: dict[str, str]  # fields that decide numbers, by name
    found: dict[Key, dict[int, float]]  # test accuracies by seed


@dataclass(frozen=True)
class Line:
    """One key on all sides, with the differences from the first side."""

    key: Key
    accuracies: tuple[Estimate, ...]
    differences: tuple[Estimate | None, ...]  # of each later side; None: not on both
    shared: tuple[int, ...]  # number of seeds that both have; 0: not paired


@dataclass(frozen=True)
class Comparison:
    names: list[str]
    settings: dict[str, list[str]]  # fields that differ, with the value of each side
    lines: list[Line]

    @property
    def method(self) -> str:
        """Return how differences are computed, in a sentence or two."""
        said = "Means over seeds; differences in percentage points with 95 % intervals, "
        if _other_images(self.settings):
            return (f"{said}not paired, because the sides have other images: what differs may be the images, not the "
                    "networks. Not corrected for the number of lines.")  # fmt: skip
        return (f"{said}paired by the seeds that both have (Student), else of independent samples (Welch). Not "
                "corrected for the number of lines.")  # fmt: skip


def side_of(home: Home) -> Side:
    """Return a sweep as a side of a comparison."""
    rows = [row for row in collect(home, costs=False) if row.measured and row.kind not in ("child", "instability")]
    groups = grouped(rows, lambda row: (row.kind, row.level, row.rewind))
    found = {
        Key(kind, level[0], _density(group), rewind): accuracies(group)
        for (kind, level, rewind), group in groups.items()
    }
    return Side(home.root.name, _settings(home.experiment), found)


def _density(rows: Sequence[Row]) -> float:
    """Return the density asked for, or the one that resulted where that is another (N:M, prune.budget: macs)."""
    wanted, found = asked(rows), density_of(rows)
    return round(wanted, 6) if abs(found - wanted) <= 0.01 * wanted + 1e-4 else round(found, 4)


def side_of_training(home: Home, training: Task) -> Side:
    """Return one training as a side of a comparison; raise Refused if it is not done."""
    result = home.result(training)
    if not result:
        raise Refused(f"{training.slug}: is not done, so there is nothing to compare; lottery sweep trains it")
    settings = _settings(training.model, "model.") | _settings(training.data, "data.")
    settings |= _settings(training.recipe, "recipe.") | {"kind": training.kind, "rewind": str(training.rewound)}
    settings |= {"seed": str(training.origin), "mask": training.mask.slug if training.mask else "none"}
    found = {Key("training", "", 1.0, "0"): {training.origin: result["test"]["top1"]}}
    return Side(training.slug, settings, found)


def compare(sides: Sequence[Side]) -> Comparison:
    """Return the comparison of all sides with the first one."""
    settings = {
        field: [side.settings.get(field, "") for side in sides]
        for field in dict.fromkeys(field for side in sides for field in side.settings)
    }
    if all(len({key.method for key in side.found} - {""}) < 2 for side in sides):
        sides = [replace(side, found={replace(key, method=""): by for key, by in side.found.items()}) for side in sides]
    points = in_order({key.rewind for side in sides for key in side.found})
    counts = Counter(key for side in sides for key in side.found)

    def place(key: Key) -> tuple[Any, ...]:
        return key.kind != "dense", key.kind != "ticket", key.kind, -key.density, points.index(key.rewind), key.method

    differ = {field: values for field, values in settings.items() if len(set(values)) > 1}
    paired, lines = not _other_images(differ), []
    for key in sorted((key for key, number in counts.items() if number > 1), key=place):
        first, *others = found = [side.found.get(key, {}) for side in sides]
        differences = tuple(difference(one, first, paired) for one in others)
        shared = tuple(len(minus(one, first)) if paired else 0 for one in others)
        lines.append(Line(key, tuple(estimate([*one.values()]) for one in found), differences, shared))
    return Comparison([side.name for side in sides], differ, lines)


def _other_images(settings: Mapping[str, list[str]]) -> bool:
    """Whether the sides were tested on different images, by the settings that differ."""
    return bool({"data.name", "data.listing"} & settings.keys())


def difference(ones: Mapping[int, float], others: Mapping[int, float], paired: bool = True) -> Estimate | None:
    """Return the mean difference of accuracies with its 95 % interval; `paired` if the two share seeds, else Welch's.

    >>> one = difference({0: 0.90, 1: 0.91, 2: 0.92}, {0: 0.89, 1: 0.90, 2: 0.91})
    >>> round(one.mean, 4), round(one.half, 4)
    (0.01, 0.0)
    """
    if not ones or not others:
        return None
    if paired and (shared := [*minus(ones, others).values()]):
        return estimate(shared)
    a, b = [*ones.values()], [*others.values()]
    half = None
    if min(len(a), len(b)) > 1:
        from scipy.special import stdtrit

        errors = [variance(part) / len(part) for part in (a, b)]
        freedom = [error**2 / (len(part) - 1) for error, part in zip(errors, (a, b), strict=True)]
        degrees = sum(errors) ** 2 / sum(freedom) if sum(freedom) else math.inf
        half = float(stdtrit(min(degrees, 1e9), 0.975)) * math.sqrt(sum(errors))
    return Estimate(mean(a) - mean(b), min(len(a), len(b)), half)


def _settings(part: Any, at: str = "") -> dict[str, str]:
    """Return the fields of an experiment or section that decide numbers, as text."""
    out: dict[str, str] = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if field.metadata.get("identity", True):
            inside = isinstance(value, Section)
            out |= _settings(value, f"{at}{field.name}.") if inside else {f"{at}{field.name}": str(plain(value))}
    return out


def write_comparison(found: Comparison, folder: Path) -> Path:
    """Write comparison.html, which includes its figure, and comparison.svg; return the page's path."""
    from jinja2 import Environment, StrictUndefined

    from sweep.report.figures import save

    tickets = any(line.key.kind == "ticket" for line in found.lines)
    drawn = save(_figure(found), folder / "comparison") if tickets else []
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    svg = next((path.read_text() for path in drawn if path.suffix == ".svg"), "")
    path = folder / "comparison.html"
    files.write_text(path, page.from_string(TEMPLATE.read_text()).render(found=found, rows=table(found), figure=svg))
    return path


def table(found: Comparison) -> list[dict[str, str]]:
    """Return the lines as text, by column heading: accuracies, and differences from the first side."""
    out = []
    for line in found.lines:
        row = {"compared": str(line.key)}
        row |= dict(zip(found.names, map(str, line.accuracies), strict=True))
        for name, one, shared in zip(found.names[1:], line.differences, line.shared, strict=True):
            how = f"{shared} pair{'s' * (shared > 1)}" if shared else "not paired"
            row[f"{name} − {found.names[0]}"] = f"{100 * one.mean:+.2f} {one.interval} ({how})" if one else "–"
        out.append(row)
    return out


def _figure(found: Comparison) -> Any:
    """Return the chart of tickets' accuracy against weights remaining, a colour for each side."""
    import altair as alt

    points = [
        {"side": f"{name} {line.key.method}".strip(), "rewind": line.key.rewind,
         "remaining": 100 * line.key.density, "accuracy": 100 * one.mean,
         "low": 100 * (one.mean - (one.half or 0)), "high": 100 * (one.mean + (one.half or 0))}
        for line in found.lines if line.key.kind == "ticket"
        for name, one in zip(found.names, line.accuracies, strict=True) if one.seeds
    ]  # fmt: skip
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("remaining:Q", title="weights remaining (%)").scale(type="log"),
        color=alt.Color("side:N", title=None),
        strokeDash=alt.StrokeDash("rewind:N", title="rewound to"),
    )
    y = alt.Y("accuracy:Q", title="test accuracy (%)").scale(zero=False)
    bars = base.mark_rule().encode(y=alt.Y("low:Q").title("test accuracy (%)").scale(zero=False), y2=alt.Y2("high:Q"))
    return (base.mark_line(point=True).encode(y=y) + bars).properties(width=560, height=320)
