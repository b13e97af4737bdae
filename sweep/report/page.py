"""The page report.html: answer, figures and how it was obtained, in one file that needs nothing else.

page.html is its template, with layout, titles and captions. This module makes its tables and sentences.
"""

from __future__ import annotations

import base64
import json
import platform
import re
import shlex
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, StrictUndefined

from sweep import files
from sweep.experiment import Data
from sweep.experiment import file as experiment_file
from sweep.experiment.sources import SOURCES
from sweep.graph.home import Home
from sweep.graph.results import Results, Row, in_csv
from sweep.graph.state import cost_of, device_seconds, forecast
from sweep.graph.training import Mask
from sweep.hardware import UNKNOWN, version_of
from sweep.report.bundle import bundle, inside_script
from sweep.report.charts import specifications
from sweep.report.curves import NAMES
from sweep.report.findings import Findings
from sweep.report.glossary import GLOSSARY
from sweep.report.intervals import dense_of, density_of, estimate, from_dense, grouped, top1
from sweep.report.overlaps import groups, made, pairs
from sweep.report.published import beside, differences, published, source
from sweep.report.statistics import Estimate
from sweep.report.verdict import DECIDED, DOUBTS, Verdict
from sweep.report.words import with_test

OTHER_WAYS = ("lr_rewind", "finetune")  # retraining from the trained weights
MASKS = 40  # most masks to compare in pairs: two megabytes each
VERSIONS = ("lottery-sweep", "tensorflow", "keras", "numpy", "h5py")
TEMPLATE = Path(__file__).with_name("page.html")

Lines = list[dict[str, str]]  # lines of a table: cells by column heading


def write_page(home: Home, found: Findings, folder: Path) -> Path:
    """Write the page of a sweep, finished or not, and return its path."""
    experiment, kinds = home.experiment, grouped(found.states, lambda one: one.state)
    drawn, notes = specifications(home, found.rows, found.steps)
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
        contents=[],  # headings, filled in by the template
        glossary=GLOSSARY,
        downloads=_downloads(home, found),
        drawn=drawn,
        notes=notes,
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
        costs=[f"{one}." for one in (_to_come(home), forecast(home)) if one] + _speed(home),
        failures=[
            {"training": one.task, "epochs done": str(one.epoch), "reason": one.note} for one in kinds.get("failed", ())
        ],
        skipped=[{"training": one.task, "why": one.note} for one in kinds.get("skipped", ())],
        missing=[one.task for one in found.states if one.state not in ("done", "skipped", "failed")],
        folder=shlex.quote(str(home.root)),
        # a record has no path of the data
        path=" data.path=PATH" if SOURCES[experiment.data.name].wants and not experiment.data.path else "",
        circumstances=_obtained(found.results),
        versions=", ".join(
            [*(f"{name} {version_of(name)}" for name in VERSIONS), f"Python {platform.python_version()}"]
        ),
        changed=experiment_file.dump_changes(experiment),
        whole=experiment_file.dump(experiment),
    )
    path = folder / "report.html"
    files.write_text(path, text)
    return path


def _question(home: Home) -> str:
    model, data, prune = home.experiment.model, home.experiment.data, home.experiment.prune
    width = f" (width {model.width:g})" if model.width != 1 else ""
    network = f"{_title(model.name)}{width} on {_images(data)}"
    if prune.instability and not (prune.quantiles or prune.thresholds or prune.share):
        return f"From which point on does the order of the data no longer matter to {network}?"
    return f"Which sparse subnetworks of {network}, rewound to which point, train as well as the dense network?"


def _images(data: Data) -> str:
    """Return the name of a data set: the title of a known one; of own images, the folder they lie in.

    >>> [_images(Data("shards", path)) for path in ("pets", "pets/shards", "shards")]
    ['pets', 'pets', 'own images']
    """
    title = SOURCES[data.name].title
    if not (SOURCES[data.name].listed and data.path):
        return title
    name = Path(data.path).resolve().name
    if name == data.name:  # "shards" says how they are stored, so the folder above it is named, if it is in the path
        name = Path(data.path).parent.name.strip(".")
    return name or title


def _title(network: str) -> str:
    """Return the name of a network as in papers.

    >>> [_title(name) for name in ("mobilenet_v2_small", "resnet20", "vgg11_bn")]
    ['MobileNetV2 for small images', 'ResNet-20', 'VGG-11-BN']
    """
    said = re.sub(r"^(resnet|vgg)(?=[0-9])", lambda found: {"resnet": "ResNet-", "vgg": "VGG-"}[found[1]], network)
    said = said.replace("mobilenet_v2", "MobileNetV2").replace("_bn", "-BN")
    said = said.replace("_small", " for small images").replace("_keras", " of keras.applications")
    return said.replace("_renda", " of Renda et al.")


def _downloads(home: Home, found: Findings) -> dict[str, str]:
    """Return files as data: URLs by name, so that the page needs no other file and no network."""
    said = {"experiment": home.experiment.name, "answer": found.answer, "doubts": found.doubts,
            "circumstances": found.circumstances, "rule": found.rule, "verdicts": list(map(asdict, found.verdicts)),
            "results": list(map(asdict, found.rows))}  # fmt: skip
    plain = json.loads(json.dumps(said), parse_constant=lambda _: None)  # NaN is not JSON
    texts = {"results.csv": ("text/csv", in_csv(found.rows)),
             "findings.json": ("application/json", json.dumps(plain, indent=1)),
             "experiment.yaml": ("text/plain", experiment_file.dump(home.experiment))}  # fmt: skip
    return {
        name: f"data:{kind};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"
        for name, (kind, text) in texts.items()
    }


# Tables -------------------------------------------------------------------------------------------------------------


def _verdicts(found: list[Verdict]) -> Lines:
    held, costs = any(one.controls for one in found), any(one.bytes for one in found)
    return _told_apart([
        {
            "method": one.method,
            "weights remaining": f"{one.density:.2%}",
            "sparsity": f"{1 - one.density:.2%}",
            **({"multiply-adds": f"{one.macs:.2%}" if one.macs is not None else "–",
                "size": f"{one.bytes / 1000:,.0f}\u00a0kB" if one.bytes is not None else "–"} if costs else {}),
            "rewind point": one.rewind,
            "seeds": str(one.accuracy.seeds),
            "test accuracy": _unbroken(one.accuracy),
            "verdict": one.outcome,
            "p (test)": with_test(one),
            "against dense, percentage points": _unbroken_reason(one),
            **({"held against": ", ".join(one.controls) or "–"} if held else {}),
        }
        for one in found
    ])  # fmt: skip


def _controls(found: list[Verdict]) -> Lines:
    return _told_apart([
        {
            "control": DOUBTS[kind],
            "method": one.method,
            "weights remaining": f"{one.density:.2%}",
            "ticket from": one.rewind,
            "seeds": str(gain.seeds),
            "ticket above it, percentage points": f"{100 * gain.mean:+.2f}",
            "95 % interval": _unbroken(gain.interval) or "–",
        }
        for kind in DOUBTS for one in found if (gain := one.controls.get(kind))
    ])  # fmt: skip


def _other_ways(rows: list[Row]) -> Lines:
    """Return the table of learning-rate rewinding and fine-tuning, which keep the trained weights."""
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
            "weights remaining": f"{density_of(group):.2%}",
            "seeds": str(len(group)),
            "test accuracy": _unbroken(estimate([top1(row) for row in group])),
            "against dense, percentage points": f"{100 * away.mean:+.2f} {_unbroken(away.interval)}" if away else "–",
        })  # fmt: skip
    return _told_apart(out)


def _beside(home: Home, rows: list[Row]) -> Lines:
    """Return the table of published figures and ours."""
    return [
        {
            "training": NAMES[one.kind].format(k=one.rewind),
            "weights remaining": f"{one.density:.2%}",
            "ours, median (seeds)": f"{median(one.ours):.2%} ({len(one.ours)})",
            "published (range)": (
                f"{one.published.median:.2%} ({one.published.least:.2%} to {one.published.greatest:.2%})"
            ),
            "difference, percentage points": f"{100 * one.deviation:+.2f}",
            "their range": one.place,
        }
        for one in beside(home.experiment, rows)
    ]


def _overlaps(home: Home, masks: list[Mask]) -> Lines:
    return [
        {
            "masks that differ in": one.differ,
            "weights remaining": f"{one.density:.2%}",
            "pairs": str(one.pairs),
            "shared": f"{one.shared:.1%}",
            "by chance, counts per kernel": f"{one.chance_in_kernels:.1%}",
            "by chance": f"{one.chance:.1%}",
        }
        for one in groups(pairs(home, masks))
    ]


def _cost(results: Results) -> Lines:
    """Return the table of GPU-hours or core-hours by kind of training, with their sum."""
    hardware = " and ".join(sorted({result.get("hardware", "device") for result in results.values()}))
    kinds = {**grouped(results, lambda one: one.kind), "all": list(results)} if results else {}
    by_core = all("cores" in result for result in results.values())  # earlier versions did not record their number
    unit = "core-hours" if by_core else "hours" if " cores " in hardware else "GPU-hours"

    def seconds(result: dict[str, Any]) -> float:
        return result["cores"] * result.get("seconds", 0.0) if by_core else device_seconds(result)

    return [
        {"trainings": kind, "number": str(len(trainings)),
         f"{unit} ({hardware})": _digits(sum(seconds(results[one]) for one in trainings) / 3600)}
        for kind, trainings in kinds.items()
    ]  # fmt: skip


def _digits(number: float) -> str:
    """Return a number with two significant digits, or as an integer from 10 on.

    >>> [_digits(number) for number in (0.03861, 1.234, 12.34, 4321.0)]
    ['0.039', '1.2', '12', '4,321']
    """
    return f"{number:.2g}" if number < 10 else f"{number:,.0f}"


# Sentences ----------------------------------------------------------------------------------------------------------


def _to_come(home: Home) -> str:
    """Return the predicted hours of missing trainings and, if a price is given, what was spent; "" without either."""
    cost = cost_of(home)
    said = [f"{_digits(cost.to_come)} device-hours remaining"] if cost.to_come else []
    said += [f"{cost.price * cost.spent:,.2f} spent at {cost.price:g} per hour"] if cost.price else []
    return ", ".join(said)


def _speed(home: Home) -> list[str]:
    """Return a sentence about images per second and waiting for data, or nothing."""
    lines = [line for one in home.graph for line in files.read_metrics(home.folder(one))[1:]]  # the first compiles
    timed = [line for line in lines if "images_per_second" in line]
    if not timed:
        return []
    speed, wait = (median(line[name] for line in timed) for name in ("images_per_second", "data_wait_share"))
    return [f"Median speed {speed:,.0f} images/s; share of the time spent waiting for data: {wait:.1%}."]


def _obtained(results: Results) -> str:
    """Return a sentence: when, on which hardware and with which software the results were obtained."""
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
    """Return a verdict's reason with no line break inside its figures; sentences (why it failed) may break."""
    figures, *why = (
        one.reason.replace(" percentage points", "").split("; ")
        if one.difference and one.outcome != "failed"
        else ("", one.reason)
    )
    return "; ".join(filter(None, (_unbroken(figures).replace("\u00a0[", " ["), *why)))


def _told_apart(lines: Lines) -> Lines:
    """Return the lines without the column of methods if there is only one method, which saves a line on a phone.

    >>> _told_apart([{"method": "lamp", "seeds": "3"}, {"method": "lamp", "seeds": "2"}])
    [{'seeds': '3'}, {'seeds': '2'}]
    >>> _told_apart([{"method": "lamp", "seeds": "3"}, {"method": "snip", "seeds": "3"}])
    [{'method': 'lamp', 'seeds': '3'}, {'method': 'snip', 'seeds': '3'}]
    """
    if len({line["method"] for line in lines}) > 1:
        return lines
    return [{name: cell for name, cell in line.items() if name != "method"} for line in lines]
