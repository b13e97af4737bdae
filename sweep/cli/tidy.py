"""What no experiment asks for any more: `lottery tidy`."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from sweep import progress
from sweep.cli.find import RESULTS, Json, Results
from sweep.errors import Refused
from sweep.experiment import file as experiment_file
from sweep.graph import claim
from sweep.graph.plan import graph_of
from sweep.progress import console


@dataclass(frozen=True)
class Unasked:
    name: str
    path: str
    bytes: int


def tidy(
    *,
    delete: Annotated[bool, Parameter(help="Delete what is listed")] = False,
    json_: Json = False,
    results: Results = RESULTS,
) -> int:
    """Trainings and masks of the pool that no experiment under the results folder asks for, with their sizes.

    Example: lottery tidy --results results
    """
    if not results.is_dir():
        raise Refused(f"{results}: no such folder; expected the folder that holds the results of all experiments")
    found = unasked(results)
    if json_:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        table = Table("no experiment asks for", "size")
        for one in found:
            table.add_row(one.name, _size(one.bytes))
        if found:
            progress.show(table)
        said = f"{len(found)} of no use to any experiment, {_size(sum(one.bytes for one in found))}"
        console.print(said + ("" if delete or not found else "; lottery tidy --delete deletes them"))
    if delete:
        for one in found:
            path = Path(one.path)
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if not json_:
            console.print(f"deleted: {len(found)}")
    return 0


def unasked(results: Path) -> list[Unasked]:
    """What lies in the pool and belongs to no experiment; nothing that a process trains now."""
    asked = _asked(results)
    paths = [path for folder in ("trainings", "masks") for path in sorted((results / folder).glob("[!.]*"))]
    return [
        Unasked(path.name, str(path), _bytes(path))
        for path in paths
        if path.name.removesuffix(".h5") not in asked and not _under_way(path)
    ]


def _asked(results: Path) -> set[str]:
    """The names of all trainings and masks that the experiments under `results` ask for."""
    out: set[str] = set()
    for described in results.glob("*/experiment.yaml"):
        for training in graph_of(experiment_file.load(described)):  # one that cannot be read is refused by name
            out.add(training.name)
            if training.mask:
                out.add(training.mask.as_made.name)
    return out


def _under_way(path: Path) -> bool:
    owner = claim.read(path) if path.is_dir() else None
    if owner is None or (path / "result.json").exists():
        return False
    return claim.alive_elsewhere(path, owner)


def _bytes(path: Path) -> int:
    return sum(one.stat().st_size for one in [path, *path.rglob("*")] if one.is_file())


def _size(count: int) -> str:
    """
    >>> _size(512), _size(1_300_000)
    ('512 B', '1.3 MB')
    """
    units = ("B", "kB", "MB", "GB", "TB")
    value, unit = float(count), 0
    while value >= 1000 and unit < len(units) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {units[unit]}" if unit == 0 else f"{value:.1f} {units[unit]}"
