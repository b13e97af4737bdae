"""Published figures and ours beside them, from what results/reference holds: python benchmarks/yardsticks.py

A figure of ours is the median over the runs on record, in float32 and float16 alike; it is inside where it lies within
the published range. What was not trained yet stands there as missing: no published figure that the experiments ask for
is left out.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median

REFERENCE = Path(__file__).parents[1] / "results" / "reference"


@dataclass(frozen=True)
class Yardstick:
    figure: str
    published: str
    range: str
    ours: list[float]
    outcome: str
    source: str


def yardsticks(reference: Path = REFERENCE) -> list[Yardstick]:
    with open(reference / "yardsticks.csv", newline="") as f:
        return [_measured(row, reference) for row in csv.DictReader(f)]


def _measured(row: dict[str, str], reference: Path) -> Yardstick:
    ours = list({k: v for name in row["experiments"].split() for k, v in _ours(name, row, reference).items()}.values())
    least, greatest = float(row["least"]), float(row["greatest"])
    outcome = _outcome(round(median(ours), 3), least, greatest) if ours else "missing"
    unit = f" {row['unit']}"
    span = f"{row['least']} to {row['greatest']}{unit}"
    return Yardstick(row["figure"], row["published"] + unit, span, ours, outcome, row["source"])


def _outcome(ours: float, least: float, greatest: float) -> str:
    if least <= ours <= greatest:
        return "inside"
    return f"outside, {ours - greatest:.3f} above" if ours > greatest else f"outside, {least - ours:.3f} below"


def _ours(experiment: str, row: dict[str, str], reference: Path) -> dict[str, float]:
    """By training, which experiments may share: in percent or points."""
    out = {}
    if row["kind"] == "dense":  # recorded before there was a pool
        for path in reference.glob(f"{experiment}/trainings.json"):
            found = json.loads(path.read_text())["trainings"]
            out |= {f"{path}/{name}": 100 * one["result"]["test"]["top1"] for name, one in found.items()}
    for path in sorted(reference.glob(f"*/{experiment}/report/results.csv")):
        with open(path, newline="") as f:
            out |= {one["training"]: 100 * float(one[_column(row)]) for one in csv.DictReader(f) if _is(one, row)}
    return out


def _column(row: dict[str, str]) -> str:
    return "instability" if row["kind"] == "instability" else "test_top1"


def _is(found: dict[str, str], row: dict[str, str]) -> bool:
    same = all(found[name] == row[name] for name in ("kind", "rewind")) and found["state"] == "done"
    near = abs(float(found["density"] or 1) - float(row["density"])) < 0.001
    return same and near and row["round"] in ("", found["round"])


def table(found: list[Yardstick]) -> str:
    lines = ["| ResNet-20, CIFAR-10 | published | range | ours (runs) | |", "|---|---|---|---|---|"]
    for one in found:
        ours = f"{median(one.ours):.2f} ({len(one.ours)})" if one.ours else "–"
        lines.append(f"| {one.figure} | {one.published} | {one.range} | {ours} | {one.outcome} |")
    there = [one for one in found if one.ours]
    inside = sum(one.outcome == "inside" for one in there)
    missing = f"; {len(found) - len(there)} of the {len(found)} rows are not trained yet" if there != found else ""
    lines.append(f"\n{inside} of {len(there)} figures lie inside the published range{missing}.")
    return "\n".join(lines)


if __name__ == "__main__":
    found = yardsticks()
    print(table(found))
    print("\nSources: " + "; ".join(dict.fromkeys(one.source for one in found)) + ".")
