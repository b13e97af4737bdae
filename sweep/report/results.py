"""The rows of results.csv: one per training, finished or not. No times, so that equal sweeps give equal files."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from sweep import store
from sweep.plan import cells
from sweep.status import state_of
from sweep.store import Store
from sweep.worker import dense_task, folder_of


@dataclass(frozen=True)
class Row:
    """One training. Numbers are None until it is done; accuracy is that of the last epoch."""

    kind: str
    seed: int
    rewind_epoch: int
    quantile: float | None = None  # asked for; None for the dense run and absolute thresholds
    threshold: float | None = None  # on |final weight|
    density: float | None = None  # of the prunable weights
    kept: int | None = None
    prunable: int | None = None
    epochs: int | None = None  # trained
    test_top1: float | None = None
    test_top5: float | None = None
    test_loss: float | None = None
    validation_top1: float | None = None
    state: str = "waiting"


def collect(home: Store) -> list[Row]:
    """All rows, dense runs first, then the cells in the order of the plan."""
    rows = []
    for seed in home.experiment.seeds:
        result = _result(home, dense_task(seed))
        rows.append(Row("dense", seed, 0, density=1.0, **result))
    for cell in cells(home.experiment):
        quantile = cell.level.value if cell.level.kind == "quantile" else None
        result = _result(home, cell.slug)
        result.setdefault("threshold", None if quantile is not None else cell.level.value)
        rows.append(Row(cell.kind, cell.seed, cell.rewind_epoch, quantile, **result))
    return rows


def _result(home: Store, task: str) -> dict[str, Any]:
    folder = folder_of(home, task)
    out: dict[str, Any] = {"state": state_of(task, folder, home.experiment.recipe.epochs).state}
    if out["state"] == "done":
        found = store.read_json(folder / "result.json")
        out |= {name: found[name] for name in ("threshold", "density", "kept", "prunable", "epochs") if name in found}
        out |= {f"test_{name}": found["test"][name] for name in ("top1", "top5", "loss")}
        out["validation_top1"] = found["validation"].get("top1")
    out.pop("density", None) if task.startswith("dense-") else None
    return out


def write_csv(rows: list[Row], path: Path) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, [f.name for f in fields(Row)], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: repr(v) if isinstance(v, float) else v for name, v in asdict(row).items()})
    store.write_text(path, text.getvalue())
