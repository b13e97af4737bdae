"""The record of an experiment: all of it but weights, small enough for a repository or a paper's supplement.

Of every training that ended: what was asked, what came out, every epoch; the masks; what XLA chose. From it the report
is drawn, figures are checked, and the sweep goes on elsewhere: where weights are needed, their training is done again
and must come out the same (sweep.work.again).
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweep import files
from sweep.errors import Refused
from sweep.experiment import Experiment
from sweep.experiment import file as experiment_file
from sweep.graph.home import REASON, RESULT, Home, metrics_of
from sweep.graph.mask_file import read_own_mask
from sweep.graph.plan import graph_of

DONE, FAILED, SKIPPED = "result.json", "failure.json", "skipped.json"
ENDS = (DONE, FAILED, SKIPPED)
NUMBERS = ("training", "test", "validation", "run", "epochs", "threshold", "density", "kept", "instability")


@dataclass(frozen=True)
class Recorded:
    trainings: int
    masks: int
    bytes: int


def record(home: Home, to: Path) -> Recorded:
    """Write it to a folder, or bring up to date what is there. One folder takes several experiments."""
    _refuse_place(home, to)
    ended = [folder for one in home.graph if _ended(folder := home.folder(one), to / folder.relative_to(home.pool))]
    if not ended:
        raise Refused(f"{home.root}: no training of it has ended, so there is nothing to record")
    named = {folder: to / folder.relative_to(home.pool) for folder in ended}
    chosen = _files(home.pool / "autotuned")
    masks = [mask for one in home.graph if one.mask and home.mask(mask := one.mask.as_made).exists()]
    described = to / home.root.name / "experiment.yaml"
    _refuse_narrower(home, described)
    for folder, there in named.items():
        _refuse_damaged(folder)
        _refuse_other_run(folder / DONE, there / DONE)
    for mask in dict.fromkeys(masks):
        read_own_mask(home, mask)
    for source in chosen:
        _refuse_other_choice(source, to / source.relative_to(home.pool))
    files.write_text(described, experiment_file.record(_anywhere(home.experiment)))
    written = {described}
    for folder, there in named.items():
        written |= _copy_training(folder, there)
    found = {home.mask(mask) for mask in masks}
    for source in (*found, *chosen):
        written |= _copy(source, to / source.relative_to(home.pool))
    return Recorded(len(ended), len(found), sum(path.stat().st_size for path in written))


def _refuse_place(home: Home, to: Path) -> None:
    pool, place = home.pool.resolve(), to.resolve()
    if place.is_relative_to(pool) or pool.is_relative_to(place):
        raise Refused(f"--to {to}: the results themselves lie there ({home.pool}); expected a folder beside them")
    if next(to.glob("trainings/*/snapshots"), None):
        raise Refused(f"--to {to}: it has weights, so it is a folder of results; expected one for the record")


def _refuse_damaged(folder: Path) -> None:
    """All is read before anything is written: damage does not travel, and replaces nothing."""
    files.read_json_if_there(folder / "training.json")
    files.read_metrics(folder)
    if (folder / DONE).exists():
        metrics_of(folder)


def _refuse_other_run(source: Path, there: Path) -> None:
    """What is on record stays. Trained again to the same numbers it is the same run, whatever time it took."""
    result, known = (files.read_json_if_there(path, RESULT) for path in (source, there))
    if result and known and _numbers(result) != _numbers(known):
        raise Refused(f"{there}: of another run than {source}; expected a folder without it")


def _numbers(result: dict[str, Any]) -> str:
    return json.dumps([result.get(name) for name in NUMBERS])  # as text, in which NaN is NaN


def _refuse_other_choice(source: Path, there: Path) -> None:
    """A result and what XLA chose for it belong together."""
    if there.exists() and there.read_bytes() != source.read_bytes():
        raise Refused(f"{there}: of another run than {source}; expected a folder without it")


def _refuse_narrower(home: Home, described: Path) -> None:
    if not described.exists():
        return
    asked = {one.name for one in graph_of(experiment_file.load(described))}
    if lacking := asked - {one.name for one in home.graph}:
        raise Refused(f"{described}: asks for {len(lacking)} trainings that {home.root} does not; expected all of them "
                      "here too: give the fields that are narrower, such as seeds=[0,1,2]")  # fmt: skip


def _ended(folder: Path, there: Path) -> bool:
    """A failure is no news of a training that has a result on record."""
    ends = [name for name in ENDS if (folder / name).exists()]
    return bool(ends) and (DONE in ends or not (there / DONE).exists())


def _copy_training(folder: Path, there: Path) -> set[Path]:
    """The end last, so that what has one is whole."""
    written = set[Path]()
    for name in ("training.json", "metrics.jsonl", SKIPPED, DONE):
        written |= _copy(folder / name, there / name)
    if failure := files.read_json_if_there(folder / FAILED, REASON):
        files.write_json(there / FAILED, failure | {"traceback": ""})  # which names folders of this machine
        written.add(there / FAILED)
    for name in (FAILED, SKIPPED):
        if there / name not in written:
            (there / name).unlink(missing_ok=True)
    return written


def _copy(source: Path, there: Path) -> set[Path]:
    with suppress(FileNotFoundError):  # it has none, or is being done once more just now
        with files.replacing(there) as beside:
            shutil.copyfile(source, beside)
        return {there}
    return set()


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("[!.]*")) if path.is_file()]


def _anywhere(experiment: Experiment) -> Experiment:
    """Without places and names of this machine and its users, which decide no number."""
    data = replace(experiment.data, path="", cache="")
    cluster = replace(experiment.cluster, partition="", account="", qos="", options=(), setup=(), container="")
    return replace(experiment, data=data, cluster=cluster, track=replace(experiment.track, entity=""))
