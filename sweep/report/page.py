"""report.html: the answer, the figures and how it was obtained, on one page that needs nothing from outside.

page.html is its template: what stands where, titles and captions. Here is what the tables and sentences say.
"""

from __future__ import annotations

import json
import platform
import shlex
from pathlib import Path
from statistics import median
from typing import Any

from sweep import files
from sweep.experiment import file as experiment_file
from sweep.experiment.sources import SOURCES
from sweep.graph.home import Home
from sweep.graph.results import Results, Row
from sweep.graph.state import cost_of, device_seconds, forecast
from sweep.graph.training import Mask
from sweep.hardware import UNKNOWN, version_of
from sweep.progress import duration
from sweep.report.bundle import bundle, inside_script
from sweep.report.charts import specifications
from sweep.report.curves import NAMES
from sweep.report.findings import Findings
from sweep.report.intervals import Estimate, dense_of, density_of, estimate, from_dense, grouped, top1
from sweep.report.overlaps import groups, made, pairs
from sweep.report.published import beside, differences, published, source
from sweep.report.verdict import DECIDED, DOUBTS, Verdict
from sweep.report.words import chance

OTHER_WAYS = ("lr_rewind", "finetune")  # to retrain, from the trained weights
MASKS = 40  # at most, that are held against each other: two megabytes each, and pairs
TITLES = {
    "mobilenet_v2": "MobileNetV2", "mobilenet_v2_small": "MobileNetV2 for small images", "resnet20": "ResNet-20",
    "resnet56": "ResNet-56",
}  # as papers write them  # fmt: skip
VERSIONS = ("lottery-sweep", "tensorflow", "keras", "numpy", "h5py")
TEMPLATE = Path(__file__).with_name("page.html")

Lines = list[dict[str, str]]  # of a table: cells by the heads of their columns


def write_page(home: Home, found: Findings, folder: Path) -> Path:
    """Write the page of a sweep and return its path; of an unfinished one, what is there and what is missing."""
    from jinja2 import Environment, StrictUndefined

    experiment, drawn, kinds = (
        home.experiment,
        specifications(home, found.rows),
        grouped(found.states, lambda one: one.state),
    )
    masks = [mask for mask in made(home) if home.mask(mask).exists()]
    page = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    ).from_string(TEMPLATE.read_text())
    text = page.render(
        experiment=experiment.name,
        question=_question(home),
        found=found,
        shown=any(one.outcome in ("winning", "matching") for one in found.verdicts),
        decided=DECIDED,
        drawn=drawn,
        charts=inside_script(json.dumps(drawn)),
        bundle=bundle(),
        differences=differences(experiment),
        published=bool(published(experiment)),
        source=source(experiment),
        verdicts=_verdicts(found.verdicts),
        controls=_controls(found.verdicts),
        other_ways=_other_ways(found.rows),
        beside=_beside(home, found.rows),
        overlaps=_overlaps(home, masks[:MASKS]),
        left_out=f"Of the first {MASKS} of {len(masks)} masks." if len(masks) > MASKS else "",
        cost=_cost(found.results),
        costs=[f"{one}." for one in (cost_of(home), forecast(home)) if one] + _speed(home),
        failures=[
            {"training": one.task, "epochs done": str(one.epoch), "reason": one.note} for one in kinds.get("failed", ())
        ],
        skipped=[{"training": one.task, "why": one.note} for one in kinds.get("skipped", ())],
        missing=[one.task for one in found.states if one.state not in ("done", "skipped", "failed")],
        folder=shlex.quote(str(home.root)),
        # a record does not say where they were
        path=" data.path=PATH" if SOURCES[experiment.data.name].wants and not experiment.data.path else "",
        circumstances=_obtained(found.results),
        versions=", ".join(f"{name} {version_of(name)}" for name in VERSIONS),
        python=platform.python_version(),
        changed=experiment_file.dump_changes(experiment),
        whole=experiment_file.dump(experiment),
    )
    path = folder / "report.html"
    files.write_text(path, text)
    return path


def _question(home: Home) -> str:
    model, data, prune = home.experiment.model, home.experiment.data, home.experiment.prune
    width = f" (width {model.width:g})" if model.width != 1 else ""
    network = f"{TITLES.get(model.name, model.name)}{width} on {SOURCES[data.name].title}"
    if prune.instability and not (prune.quantiles or prune.thresholds or prune.share):
        return f"From which point on does the order of the data no longer matter to {network}?"
    return f"Which sparse subnetworks of {network}, rewound to which point, train as well as the whole?"


# Tables -------------------------------------------------------------------------------------------------------------


def _verdicts(found: list[Verdict]) -> Lines:
    held = any(one.controls for one in found)
    return _told_apart([
        {
            "method": one.method,
            "remaining": f"{one.density:.2%}",
            "rewind": one.rewind,
            "seeds": str(one.accuracy.seeds),
            "test accuracy": _unbroken(one.accuracy),
            "verdict": one.outcome,
            "p, corrected": chance(one.p),
            "against dense": _unbroken_reason(one),
            **({"held against": ", ".join(one.controls) or "–"} if held else {}),
        }
        for one in found
    ])  # fmt: skip


def _controls(found: list[Verdict]) -> Lines:
    return _told_apart([
        {
            "control": DOUBTS[kind],
            "method": one.method,
            "remaining": f"{one.density:.2%}",
            "ticket from": one.rewind,
            "seeds": str(gain.seeds),
            "ticket above it, points": f"{100 * gain.mean:+.2f}",
            "95 % interval": gain.interval or "–",
        }
        for kind in DOUBTS for one in found if (gain := one.controls.get(kind))
    ])  # fmt: skip


def _other_ways(rows: list[Row]) -> Lines:
    """Retraining that keeps the trained weights."""
    others, out = [row for row in rows if row.kind in OTHER_WAYS], []

    def way(row: Row) -> tuple[str, tuple[Any, ...]]:
        return NAMES[row.kind].format(k=row.rewind), row.level

    found = grouped([row for row in others if row.measured and row.density is not None], way)
    above = from_dense(found, dense_of(rows), {way(row) for row in others if row.lost})
    for (name, level), group in sorted(found.items(), key=lambda item: (item[0][0], -(item[1][0].density or 0))):
        away = above.get((name, level))
        out.append({
            "retraining": name,
            "method": level[0] or "not pruned",
            "remaining": f"{density_of(group):.2%}",
            "seeds": str(len(group)),
            "test accuracy": _unbroken(estimate([top1(row) for row in group])),
            "against dense, points": f"{100 * away.mean:+.2f} {away.interval}" if away else "–",
        })  # fmt: skip
    return _told_apart(out)


def _beside(home: Home, rows: list[Row]) -> Lines:
    """Published figures and ours."""
    return [
        {
            "training": NAMES[one.kind].format(k=one.rewind),
            "remaining": f"{one.density:.2%}",
            "ours, median (seeds)": f"{median(one.ours):.2%} ({len(one.ours)})",
            "published (range)": (
                f"{one.published.median:.2%} ({one.published.least:.2%} to {one.published.greatest:.2%})"
            ),
            "points": f"{100 * one.deviation:+.2f}",
            "their range": one.place,
        }
        for one in beside(home.experiment, rows)
    ]


def _overlaps(home: Home, masks: list[Mask]) -> Lines:
    return [
        {
            "masks that differ in": one.differ,
            "remaining": f"{one.density:.2%}",
            "pairs": str(one.pairs),
            "shared": f"{one.shared:.1%}",
            "by chance, counts per kernel": f"{one.chance_in_kernels:.1%}",
            "by chance": f"{one.chance:.1%}",
        }
        for one in groups(pairs(home, masks))
    ]


def _cost(results: Results) -> Lines:
    """Device-hours by kind."""
    hardware = "/".join(sorted({result.get("hardware", "device") for result in results.values()}))
    out = []
    for kind, trainings in grouped(results, lambda one: one.kind).items():
        seconds = sum(device_seconds(results[one]) for one in trainings)
        out.append({"trainings": kind, "number": str(len(trainings)), "device time": duration(seconds),
                    f"{hardware}-hours": f"{seconds / 3600:.3g}"})  # fmt: skip
    return out


# Sentences ----------------------------------------------------------------------------------------------------------


def _speed(home: Home) -> list[str]:
    """How fast the devices were fed."""
    lines = [line for one in home.graph for line in files.read_metrics(home.folder(one))[1:]]  # the first compiles
    timed = [line for line in lines if "images_per_second" in line]
    if not timed:
        return []
    speed, wait = (median(line[name] for line in timed) for name in ("images_per_second", "data_wait_share"))
    return [f"Median speed {speed:,.0f} images/s; share of the time spent waiting for data: {wait:.1%}."]


def _obtained(results: Results) -> str:
    """When, on what and with which code the results were obtained, as far as they say."""
    there = results.values()
    known = {name: sorted({one[name] for one in there if one.get(name) not in (None, "", UNKNOWN)}) for name in
             ("date", "hardware", "driver", "tensorflow", "version", "commit")}  # fmt: skip
    if not results:
        return "Nothing is trained yet."
    dates = " to ".join(dict.fromkeys((known["date"][0], known["date"][-1]))) if known["date"] else ""
    words = [f"{title} {' and '.join(known[name])}" for name, title in
             (("driver", "driver"), ("tensorflow", "TensorFlow"), ("version", "lottery-sweep"), ("commit", "commit"))
             if known[name]]  # fmt: skip
    where = f"on {' and '.join(known['hardware'])}" if known["hardware"] else ""
    return f"Trained {', '.join(filter(None, [' '.join(filter(None, [dates, where])), *words]))}."


# Small parts --------------------------------------------------------------------------------------------------------


def _unbroken(figure: Estimate | str) -> str:
    return str(figure).replace(" ", "\u00a0")


def _unbroken_reason(one: Verdict) -> str:
    """Return a verdict's reason with its figures kept on one line; a sentence (why it failed) may break."""
    figures, *why = one.reason.split("; ") if one.difference and one.outcome != "failed" else ("", one.reason)
    return "; ".join(filter(None, (_unbroken(figures), *why)))


def _told_apart(lines: Lines) -> Lines:
    """Without the column of methods where there is one method: on a phone it is a line of every ticket.

    >>> _told_apart([{"method": "lamp", "seeds": "3"}, {"method": "lamp", "seeds": "2"}])
    [{'seeds': '3'}, {'seeds': '2'}]
    >>> _told_apart([{"method": "lamp", "seeds": "3"}, {"method": "snip", "seeds": "3"}])
    [{'method': 'lamp', 'seeds': '3'}, {'method': 'snip', 'seeds': '3'}]
    """
    if len({line["method"] for line in lines}) > 1:
        return lines
    return [{name: cell for name, cell in line.items() if name != "method"} for line in lines]
