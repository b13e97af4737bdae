"""report.html: the answer, the figures and how it was obtained, on one page that needs nothing from outside."""

from __future__ import annotations

import html
import json
import platform
import shlex
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from string import Template
from typing import Any

from sweep import files
from sweep.experiment import file as experiment_file
from sweep.experiment.sources import SOURCES
from sweep.graph.home import Home
from sweep.graph.results import Results, Row
from sweep.graph.state import State, cost_of, device_seconds, forecast
from sweep.hardware import UNKNOWN, version_of
from sweep.progress import duration
from sweep.report.bundle import bundle, inside_script
from sweep.report.charts import charts
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
TEMPLATE = Path(__file__).with_name("page.html")


def write_page(home: Home, everything: Findings, folder: Path) -> Path:
    """The page of a sweep; of an unfinished one, what is there and what is missing."""
    found, rows, where, results = everything.verdicts, everything.rows, everything.states, everything.results
    drawn = charts(home, rows)
    sections = [
        _answer(everything),
        _verdict_table(found),
        _figure("curves", drawn, "Accuracy and remaining weights", _curves_caption(home)),
        _controls(found),
        _other_ways(rows),
        _published(home, rows),
        _figure("rewinds", drawn, "Accuracy and rewind point", "A line per density; points as above."),
        _figure("gains", drawn, "What a later rewind point gains", "Paired by seed; bars as those of the verdicts."),
        _figure("grid", drawn, "Every ticket", "Test accuracy in percent; mean over seeds. Grey: no result."),
        _figure("differences", drawn, "Every ticket, against the dense network", "Points of test accuracy above it."),
        _figure(
            "instability",
            drawn,
            "Instability",
            "Largest error on the line between two children, above that of its ends; under 2 points: stable.",
        ),
        _figure(
            "learning",
            drawn,
            "Epoch by epoch",
            "Choose a training and what was measured; the dense runs beside it. Dashed: on training images.",
        ),
        _figure("layers", drawn, "What is left of every kernel", "Weights that the mask keeps; red: none."),
        _overlaps(home),
        _cost(home, results),
        _failures(where),
        _missing(where),
        _how(home, results),
    ]
    page = Template(TEMPLATE.read_text()).substitute(
        title=html.escape(f"{home.experiment.name}: which tickets train as well as the whole network?"),
        experiment=html.escape(home.experiment.name),
        question=_question(home),
        body="\n".join(section for section in sections if section),
        bundle=bundle(),
        charts=inside_script(json.dumps(drawn)),
    )
    path = folder / "report.html"
    files.write_text(path, page)
    return path


# Sections -----------------------------------------------------------------------------------------------------------


def _question(home: Home) -> str:
    model, data = home.experiment.model, home.experiment.data
    width = f" (width {model.width:g})" if model.width != 1 else ""
    network = f"{TITLES.get(model.name, model.name)}{width} on {SOURCES[data.name].title}"
    prune = home.experiment.prune
    if prune.instability and not (prune.quantiles or prune.thresholds or prune.share):
        return html.escape(f"From which point on does the order of the data no longer matter to {network}?")
    return html.escape(f"Which sparse subnetworks of {network}, rewound to which point, train as well as the whole?")


def _answer(found: Findings) -> str:
    shown = any(one.outcome in ("winning", "matching") for one in found.verdicts)
    parts = [f'<p class="answer{" shown" if shown else ""}">{html.escape(found.answer)}</p>']
    parts += [f'<p class="undecided">{html.escape(said)}</p>' for said in found.doubts]
    parts += [f"<p>{html.escape(said)}</p>" for said in found.circumstances]
    if found.rule:
        parts.append(f'<p class="faint">{html.escape(found.rule)}</p>')
    return "\n".join(parts)


def _figure(name: str, charts: dict[str, Any], title: str, caption: str) -> str:
    if name not in charts:
        return ""
    return (
        f"<h2>{html.escape(title)}</h2>\n"
        f'<figure><div class="wide"><div class="chart" id="{name}"></div></div>'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def _curves_caption(home: Home) -> str:
    text = (
        "Lines: tickets by rewind point; dashed: controls; bars: 95 % interval of the difference from the dense "
        "network, as in the verdicts; without one: one seed, or one failed. A point that lacks seeds stands at the "
        "mean of all dense runs plus its difference from the dense runs of the seeds it has. 2ep is after 2 epochs, "
        "500it after 500 steps. Click in the legend to pick a line."
    )
    if other := differences(home.experiment):
        return f"{text} Published curves are not drawn, the recipe is another: {'; '.join(other)}."
    return f"{text} Grey: {source(home.experiment)}." if published(home.experiment) else text


def _verdict_table(found: list[Verdict]) -> str:
    held = any(one.controls for one in found)
    rows = [
        (
            html.escape(one.method), f"{one.density:.2%}", one.rewind, str(one.accuracy.seeds), _unbroken(one.accuracy),
            f'<span class="{one.outcome.split()[0]}">{html.escape(one.outcome)}</span>', html.escape(chance(one.p)),
            html.escape(_reason(one)),
            *([", ".join(one.controls) or "–"] if held else []),
        )
        for one in found
    ]  # fmt: skip
    head = ("method", "remaining", "rewind", "seeds", "test accuracy", "verdict", "p, corrected", "against dense")
    table = _table("Verdicts", *_told_apart((*head, "held against") if held else head, rows), escape=False)
    return table + (f'<p class="faint">{html.escape(DECIDED)}</p>' if rows else "")


def _controls(found: list[Verdict]) -> str:
    lines = [
        (DOUBTS[kind], one.method, f"{one.density:.2%}", one.rewind, str(gain.seeds), f"{100 * gain.mean:+.2f}",
         gain.interval or "–")
        for kind in DOUBTS for one in found if (gain := one.controls.get(kind))
    ]  # fmt: skip
    head = ("control", "method", "remaining", "ticket from", "seeds", "ticket above it, points", "95 % interval")
    return _table("Tickets against their controls", *_told_apart(head, lines))


def _other_ways(rows: list[Row]) -> str:
    """Retraining that keeps the trained weights."""
    others = [row for row in rows if row.kind in OTHER_WAYS]

    def way(row: Row) -> tuple[str, tuple[Any, ...]]:
        return NAMES[row.kind].format(k=row.rewind), row.level

    groups = grouped([row for row in others if row.measured and row.density is not None], way)
    above, lines = from_dense(groups, dense_of(rows), {way(row) for row in others if row.lost}), []
    for (name, level), group in sorted(groups.items(), key=lambda item: (item[0][0], -(item[1][0].density or 0))):
        points = f"{100 * away.mean:+.2f} {away.interval}" if (away := above.get((name, level))) else "–"
        lines.append((name, level[0] or "not pruned", f"{density_of(group):.2%}", str(len(group)),
                      _unbroken(estimate([top1(row) for row in group])), points))  # fmt: skip
    head = ("retraining", "method", "remaining", "seeds", "test accuracy", "against dense, points")
    return _table("Other ways to retrain", *_told_apart(head, lines))


def _published(home: Home, rows: list[Row]) -> str:
    lines = [
        (
            NAMES[one.kind].format(k=one.rewind), f"{one.density:.2%}", f"{median(one.ours):.2%} ({len(one.ours)})",
            f"{one.published.median:.2%} ({one.published.least:.2%} to {one.published.greatest:.2%})",
            f"{100 * one.deviation:+.2f}", one.place,
        )
        for one in beside(home.experiment, rows)
    ]  # fmt: skip
    head = ("training", "remaining", "ours, median (seeds)", "published (range)", "points", "their range")
    return _table("Beside published figures", head, lines) + (f"<p>{source(home.experiment)}.</p>" if lines else "")


def _overlaps(home: Home) -> str:
    there = [mask for mask in made(home) if home.mask(mask).exists()]
    lines = [
        (one.differ, f"{one.density:.2%}", str(one.pairs), *(f"{share:.1%}" for share in
         (one.shared, one.chance_in_kernels, one.chance)))
        for one in groups(pairs(home, there[:MASKS]))
    ]  # fmt: skip
    head = ("masks that differ in", "remaining", "pairs", "shared", "by chance, counts per kernel", "by chance")
    first = f"<p>Of the first {MASKS} of {len(there)} masks.</p>" if lines and len(there) > MASKS else ""
    return _table("What masks share", head, lines) + first


def _cost(home: Home, results: Results) -> str:
    """Device-hours by kind, and how fast the devices were fed."""
    spent: dict[str, list[float]] = {}
    speeds, waits, kinds = [], [], set()
    for training, result in results.items():
        spent.setdefault(training.kind, []).append(device_seconds(result))
        kinds.add(result.get("hardware", "device"))
    for training in home.graph:
        for line in files.read_metrics(home.folder(training))[1:]:  # the first epoch has the compilation in it
            if "images_per_second" in line:
                speeds.append(line["images_per_second"])
                waits.append(line["data_wait_share"])
    lines = [
        (kind, str(len(seconds)), duration(sum(seconds)), f"{sum(seconds) / 3600:.3g}")
        for kind, seconds in spent.items()
    ]
    if not lines:
        return ""
    hours = f"{'/'.join(sorted(kinds))}-hours"
    text = _table("Cost", ("trainings", "number", "device time", hours), lines) + f"<p>{cost_of(home)}.</p>"
    if so_far := forecast(home):
        text += f"<p>{so_far}.</p>"
    if speeds:
        share = f"{median(waits):.1%}" if waits else "–"
        text += (
            f"<p>Median speed {median(speeds):,.0f} images/s; share of the time spent waiting for data: {share}.</p>"
        )
    return text


def _failures(where: list[State]) -> str:
    lines = [(state.task, f"{state.epoch}", state.note) for state in where if state.state == "failed"]
    skipped = [(state.task, state.note) for state in where if state.state == "skipped"]
    return _table("Failures", ("training", "epochs done", "reason"), lines) + _table(
        "Where the method ends: not trained, because the mask cuts the network through", ("training", "why"), skipped
    )


def _missing(where: list[State]) -> str:
    names = [state.task for state in where if state.state not in ("done", "skipped", "failed")]
    listed = html.escape("\n".join(names))
    return f"<details><summary>{len(names)} missing</summary><pre>{listed}</pre></details>" if names else ""


def _how(home: Home, results: Results) -> str:
    """Commands, versions and the experiment itself."""
    names = ("lottery-sweep", "tensorflow", "keras", "numpy", "h5py")
    versions = ", ".join(f"{name} {version_of(name)}" for name in names) + f", Python {platform.python_version()}"
    folder, data = shlex.quote(str(home.root)), home.experiment.data
    path = (
        " data.path=PATH" if SOURCES[data.name].wants and not data.path else ""
    )  # a record does not say where they were
    changed, whole = (
        html.escape(write(home.experiment)) for write in (experiment_file.dump_changes, experiment_file.dump)
    )
    return (
        "<h2>How this was obtained</h2>\n"
        f"<pre>{html.escape(f'lottery sweep {folder}{path}')}\n{html.escape(f'lottery report {folder}')}</pre>\n"
        f"<p>{html.escape(_circumstances(results))}</p>\n"
        f"<p>Report written with {html.escape(versions)}.</p>\n"
        f"<details open><summary>experiment.yaml, what is not as by default</summary><pre>{changed}</pre></details>\n"
        f"<details><summary>experiment.yaml, every field</summary><pre>{whole}</pre></details>"
    )


def _circumstances(results: Results) -> str:
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


def _reason(one: Verdict) -> str:
    """Its figures on one line; why it failed is a sentence."""
    figures, *why = one.reason.split("; ") if one.difference and one.outcome != "failed" else ("", one.reason)
    return "; ".join(filter(None, (_unbroken(figures), *why)))


def _told_apart(head: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Without the column of methods where there is one method: on a phone it is a line of every ticket.

    >>> _told_apart(("method", "seeds"), [("lamp", "3"), ("lamp", "2")])
    (['seeds'], [['3'], ['2']])
    >>> _told_apart(("method", "seeds"), [("lamp", "3"), ("snip", "3")])
    (('method', 'seeds'), [('lamp', '3'), ('snip', '3')])
    """
    place = head.index("method")
    if len({row[place] for row in rows}) > 1:
        return head, rows
    return [*head[:place], *head[place + 1 :]], [[*row[:place], *row[place + 1 :]] for row in rows]


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], escape: bool = True) -> str:
    if not rows:
        return ""
    ready = [[html.escape(text) if escape else text for text in row] for row in rows]
    named = [html.escape(text) for text in head]
    body = "\n".join(
        "<tr>" + "".join(f'<td data-head="{name}">{text}</td>' for name, text in zip(named, row, strict=True)) + "</tr>"
        for row in ready
    )
    heads = "".join(f"<th>{name}</th>" for name in named)
    return f'<h2>{html.escape(title)}</h2>\n<div class="wide"><table><tr>{heads}</tr>\n{body}\n</table></div>'
