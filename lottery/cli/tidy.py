"""The commands record and tidy: a sweep in a few files; what no experiment asks for, or came from a replaced run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.filesize import decimal
from rich.table import Table

from lottery.cli.find import RESULTS, ExperimentName, Json, Override, Results, print_json, read_home
from sweep import files, progress
from sweep.errors import Refused
from sweep.experiment import END, Experiment
from sweep.experiment import file as experiment_file
from sweep.graph import claim
from sweep.graph.home import descriptions
from sweep.graph.plan import graph_of
from sweep.graph.record import record as write_record
from sweep.graph.runs import Runs
from sweep.graph.training import Mask, Task
from sweep.progress import console
from sweep.report import write_report

UNASKED = "no experiment asks for it"


@dataclass(frozen=True)
class Left:
    name: str
    path: str
    bytes: int
    why: str


def record(
    experiment: ExperimentName,
    *overrides: Override,
    to: Annotated[Path, Parameter(help="Folder to write to, or to update; it can hold several experiments")],
    weights: Annotated[bool, Parameter(help="Also final weights, so that others can evaluate and export")] = False,
    results: Results = RESULTS,
) -> None:
    """Write a sweep for a repository or a paper: results, epochs, masks, the page with its tables and figures.

    A sweep can be continued from it: if weights are needed, their training is done again and must give the same result.

    Example: lottery record dry_run --to record
    """
    home = read_home(experiment, overrides, results)
    found = write_record(home, to, weights)
    there = read_home(str(to / home.root.name), (), to)
    page, *_ = write_report(there)
    console.print(
        f"{found.trainings} trainings and {found.masks} masks, the weights of {found.weights or 'none'}, "
        f"{found.bytes / 1e6:.1f} MB, in {to}; the page: {page}"
    )


def tidy(
    *,
    replaced: Annotated[bool, Parameter(help="Instead, list what came from a run since replaced")] = False,
    delete: Annotated[bool, Parameter(help="Delete what is listed")] = False,
    json_: Json = False,
    results: Results = RESULTS,
) -> None:
    """List trainings and masks that no experiment asks for; with --replaced, those from a run since replaced.

    Example: lottery tidy --results results
    """
    if not results.is_dir():
        raise Refused(f"{results}: no such folder; expected the folder that holds the results of all experiments")
    found = [one for one in left_over(results) if replaced == (one.why != UNASKED)]
    if json_:
        print_json(found)
    else:
        table = Table("left over", "why", "size")
        for one in found:
            table.add_row(one.name, one.why, decimal(one.bytes))
        if found:
            progress.show(table)
        what = "from a run since replaced" if replaced else "unreferenced: no experiment asks for them"
        said = f"{len(found)} {what}, {decimal(sum(one.bytes for one in found))}"
        again = "lottery tidy --replaced --delete" if replaced else "lottery tidy --delete"
        console.print(said + ("" if delete or not found else f"; {again} deletes them"))
    if delete:
        kept = [f"{one.path}: {why}" for one in found if (why := _delete(Path(one.path)))]
        if not json_:
            console.print(f"deleted: {len(found) - len(kept)}")
        if kept:
            raise Refused(f"not deleted: {'; '.join(kept)}")


def _delete(path: Path) -> str:
    """Delete a file, a folder or a link, not what it points to; return why that failed, or ""."""
    try:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def left_over(results: Path) -> list[Left]:
    """Return what is unreferenced or replaced in the pool, except what a process is training now."""
    experiments = [experiment_file.load(path) for path in descriptions(results)]  # Refused, naming one that is invalid
    asked = _asked(experiments)
    others = _of_other_runs(results, asked)
    # final weights of these trainings, among other files; by name, because the path may be relative or from elsewhere
    begun_from = {part for one in experiments for part in Path(one.model.weights).parts}
    paths = [path for folder in ("trainings", "masks") for path in sorted((results / folder).glob("[!.]*"))]
    free = [path for path in paths if not _under_way(path) and path.name not in begun_from]
    named = {path: path.name.removesuffix(".h5") for path in free}
    why = {name: others.get(name, "") if name in asked else UNASKED for name in named.values()}
    return [Left(path.name, str(path), _bytes(path), why[name]) for path, name in named.items() if why[name]]


def _asked(experiments: list[Experiment]) -> dict[str, Task | Mask]:
    """Return all trainings and masks that experiments ask for, by name."""
    out: dict[str, Task | Mask] = {}
    for experiment in experiments:
        for training in graph_of(experiment):
            out[training.name] = training
            if training.mask:
                out[training.mask.as_made.name] = training.mask.as_made
    return out


def _of_other_runs(results: Path, asked: Mapping[str, Task | Mask]) -> dict[str, str]:
    """Return the names among `asked` that came from another run than the one in the pool, with the reason."""
    runs = Runs(results)

    def of_mask(mask: Mask) -> str:
        path, there = results / "masks" / f"{mask.name}.h5", runs.there(mask.of.name)
        if mask.method.at != END or there is None or not path.exists():
            return ""
        return mask.of.name if files.read_attributes(path).get("weights") != there else ""

    def replaced(one: Task | Mask) -> str:
        if isinstance(one, Mask):
            return of_mask(one) or runs.replaced(one.of)
        unknown = one.mask and not runs.recorded(one.name)  # earlier versions did not record runs; look at its mask
        return runs.replaced(one) or (of_mask(one.mask.as_made) if one.mask and unknown else "")

    found = {name: replaced(one) for name, one in asked.items()}
    return {name: f"of another run of {parent}" for name, parent in found.items() if parent}


def _under_way(path: Path) -> bool:
    owner = claim.read(path) if path.is_dir() else None
    return owner is not None and not (path / "result.json").exists() and claim.alive_elsewhere(path, owner)


def _bytes(path: Path) -> int:
    return sum(one.stat().st_size for one in [path, *path.rglob("*")] if one.is_file())
