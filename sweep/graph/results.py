"""The rows of results.csv, one per training, finished or not. No times, so that equal sweeps give equal files."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from sweep import files
from sweep.errors import Refused
from sweep.experiment import END
from sweep.graph.home import Home
from sweep.graph.mask_file import read_own_mask, right_count
from sweep.graph.runs import Runs
from sweep.graph.state import state_of
from sweep.graph.training import Mask, Task
from sweep.pruning.cost import costs_of

EVALUATION = "evaluation.json"  # in a training's folder: accuracy per class and confusion matrix


@dataclass(frozen=True)
class Row:
    """One training as a row of results.csv. Numbers are None until it is done; accuracy is that of the last epoch."""

    training: str  # its name in the pool
    kind: str
    seed: int
    rewind: str  # point of the dense run it starts from, or point at which its schedule starts
    quantile: float | None = None  # asked for; None for the dense run and absolute thresholds
    threshold: float | None = None  # on |final weight|
    density: float | None = None  # share of the prunable weights that is kept
    kept: int | None = None
    prunable: int | None = None
    epochs: float | None = None  # number of epochs trained
    test_top1: float | None = None
    test_top5: float | None = None
    test_loss: float | None = None
    validation_top1: float | None = None
    state: str = "waiting"
    method: str = ""  # pruning method; empty: dense
    round: int | None = None  # round of iterative pruning, from 1
    mask: str = ""  # name of its mask in the pool; a control has that of its ticket
    instability: float | None = None  # largest test error on the line between two trainings, above the mean of its ends
    reason: str = ""  # why it was skipped or failed
    data: str = ""  # data set of training and test
    found_on: str = ""  # data set of the run that its mask was found in; empty: dense
    macs: float | None = None  # share of the dense network's multiply-adds that remain
    bytes: int | None = None  # size of its float32 weights (sweep.pruning.cost)

    @property
    def level(self) -> tuple[str, float | None, float | None]:
        """Return what was asked for: method, quantile, absolute threshold. The density may differ between seeds."""
        return self.method, self.quantile, self.threshold if self.quantile is None else None

    @property
    def measured(self) -> bool:
        """Whether the training has a finite accuracy."""
        return self.test_top1 is not None and math.isfinite(self.test_top1)

    @property
    def lost(self) -> bool:
        """Whether the training will have no accuracy, because it failed, diverged or was skipped."""
        return self.state in ("failed", "skipped") or (self.test_top1 is not None and not self.measured)


Results = dict[Task, dict[str, Any]]  # content of result.json


def results_of(home: Home) -> Results:
    """Return the content of result.json of every finished training."""
    return {training: result for training in home.graph if (result := home.result(training))}


def evaluations(home: Home) -> dict[str, dict[str, Any]]:
    """Return what `lottery evaluate` wrote, by training: accuracy per class and confusion matrix on the test images."""
    shape: files.Shape = {"per_class": {}, "confusion": list}
    found = {one.slug: files.read_json_if_there(home.folder(one) / EVALUATION, shape) for one in home.graph}
    return {task: evaluation for task, evaluation in found.items() if evaluation}


def unsealed_results(home: Home) -> int:
    """Return how many results of this experiment have no checksum: versions before 0.3 wrote none."""
    paths = [home.folder(training) / "result.json" for training in home.graph]
    return sum(path.exists() and f'"{files.CHECKSUM}"' not in path.read_text() for path in paths)


def classes_of(home: Home) -> int:
    """Return the number of classes from a mask or the final weights of a dense run; 0 if neither is there."""
    # masks of a transfer are those of the source, which may have other classes
    paths = [home.mask(one.mask.as_made) for one in home.graph if one.mask and not one.transferred]
    paths += [home.snapshot(one, END) for one in home.graph.dense]
    found = next((path for path in paths if path.exists()), None)
    return int(files.read_arrays(found)[1].get("classes", 0)) if found else 0


def images_tested(results: Results) -> int:
    """Return the number of test images, not counting a transfer's source; 0 if results do not have it, or differ."""
    judged = (result for training, result in results.items() if training.kind != "source")
    numbers = {number for result in judged if (number := result.get("test_images"))}
    return int(max(numbers)) if len(numbers) == 1 else 0


def collect(home: Home, costs: bool = True) -> list[Row]:
    """Return all rows in the order of the plan: stage by stage, the longest first.

    `costs`: also count multiply-adds and bytes of old results, which takes reading their masks.
    """
    runs = Runs(home.pool)
    rows = [_row(home, training, runs) for training in home.graph]
    return _costed(home, rows) if costs else rows


def _costed(home: Home, rows: list[Row]) -> list[Row]:
    """Return rows with multiply-adds and bytes counted from masks, if results of earlier versions lack them."""
    known: dict[Mask | None, dict[str, Any]] = {}
    masks = [_counted(training.mask) for training in home.graph]
    for mask, row in zip(masks, rows, strict=True):
        if mask and mask not in known and row.measured and row.macs is None and home.mask(mask.as_made).exists():
            found = read_own_mask(home, mask)
            known[None], known[mask] = costs_of(None, found.network), costs_of(found.mask, found.network)
    return [
        replace(row, **known.get(mask, {})) if row.measured and row.macs is None else row
        for mask, row in zip(masks, rows, strict=True)
    ]


def _counted(mask: Mask | None) -> Mask | None:
    """Return the mask to count in: for a shuffled one the ticket's, which keeps as many weights per kernel."""
    return mask.as_made if mask and mask.arrangement == "shuffled" else mask


def _row(home: Home, training: Task, runs: Runs) -> Row:
    folder = home.folder(training)
    out: dict[str, Any] = {"state": "waiting", "data": training.data.name}
    if folder.exists():
        found = state_of(home, training)
        out |= {"state": found.state, "reason": found.note if found.state in ("skipped", "failed") else ""}
    if training.mask is None:
        out["density"] = 1.0
    else:
        out["found_on"] = training.mask.of.data.name
        level = training.mask.level
        out |= {level.kind: level.value, "method": str(training.mask.method)}
        out |= {"round": training.mask.round, "mask": training.mask.of_ticket.name}
        if out["state"] == "skipped" and level.kind == "threshold" and not training.transferred:
            known = home.mask(training.mask.as_made).exists()
            out["density"] = read_own_mask(home, training.mask).density if known else None
    if out["state"] == "done" and (result := home.result(training)):
        if result.get("training", training.name) != training.name:
            raise Refused(f"{folder / 'result.json'}: the result of {result['training']}; put it back, or delete the "
                          "folder to train it again")  # fmt: skip
        runs.refuse_replaced(training)
        names = ("threshold", "density", "kept", "prunable", "epochs", "instability", "macs", "bytes")
        out |= {name: result[name] for name in names if result.get(name) is not None}
        out |= {f"test_{name}": result["test"][name] for name in ("top1", "top5", "loss")}
        out["validation_top1"] = result["validation"].get("top1")
        if (result.get("epochs") or 0) < 0:
            raise Refused(f"{folder / 'result.json'}: {result['epochs']} epochs, expected 0 or more; delete the folder "
                          "to train it again")  # fmt: skip
        kept, total = result.get("kept"), result.get("prunable")
        if kept is not None and total is not None:
            density = result.get("density", kept / total)
            if not (0 <= kept <= total and abs(density - kept / total) < 1e-6):
                raise Refused(f"{folder / 'result.json'}: {kept} of {total} weights kept, a density of "
                              f"{density}; delete the folder to train it again")  # fmt: skip
            # on a network with other classes, a mask does not prune the classifier; a uniform mask rounds in every
            # kernel, so the total alone does not give its count
            if training.mask and not training.transferred and training.mask.method.allocation != "uniform":
                right = right_count(training.mask, [total])
                if right not in (None, kept):
                    raise Refused(f"{folder / 'result.json'}: {kept} of {total} weights kept, expected {right} at "
                                  f"{training.mask.level}; delete the folder to train it again")  # fmt: skip
    kind = training.kind
    if kind == "fresh" and "fresh" not in home.experiment.prune.controls:  # at point 0 both are the same training
        kind = "fresh_short"
    return Row(training.name, kind, training.origin, str(training.rewound), **out)


def in_csv(rows: list[Row]) -> str:
    """Return rows as the text of results.csv."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [f.name for f in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _inert(value) for name, value in asdict(row).items()} for row in rows)
    return text.getvalue()


def _inert(value: Any) -> Any:
    """Return text that a spreadsheet does not take for a formula: an error message may contain anything.

    >>> _inert("=cmd|'/c calc'!A1"), _inert("loss is nan"), _inert(0)
    ("'=cmd|'/c calc'!A1", 'loss is nan', 0)
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(tuple("=+-@\t\r")) else value
