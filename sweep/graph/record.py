"""The record of an experiment, small enough for a repository or a paper's supplement; with weights only if asked for.

It has description, result and every epoch of the trainings that ended, the masks, and XLA's choices. From a record the
report can be made, figures checked, and the sweep continued elsewhere: if weights are needed, their training is done
again and must give the same result (sweep.work.again). Its files are described in sweep.graph.packed.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sweep import files
from sweep.errors import Refused
from sweep.experiment import END, Experiment
from sweep.experiment import file as experiment_file
from sweep.graph import packed
from sweep.graph.home import REASON, RESULT, Home, metrics_of
from sweep.graph.mask_file import read_own_mask
from sweep.graph.plan import graph_of

DONE, FAILED, SKIPPED = "result.json", "failure.json", "skipped.json"
NUMBERS = ("training", "test", "validation", "run", "epochs", "threshold", "density", "kept", "instability")


@dataclass(frozen=True)
class Recorded:
    """The number of trainings, of masks and of trainings with weights in a record, and its size in bytes."""

    trainings: int
    masks: int
    weights: int
    bytes: int


def record(home: Home, to: Path, weights: bool = False) -> Recorded:
    """Write the record of an experiment, or update it. One folder can hold the records of several experiments.

    Old and new content are merged in a temporary folder and packed only if nothing is refused.
    """
    _refuse_place(home, to)
    described = to / home.root.name / "experiment.yaml"
    _refuse_narrower(home, described)
    with TemporaryDirectory(prefix="lottery-record-") as folder:
        whole = Path(folder)
        if packed.is_record(to):
            packed.unpack(to, whole)
        ended = sum(_copy_training(home.folder(one), whole / "trainings" / one.name, to) for one in home.graph)
        if not ended:
            raise Refused(f"{home.root}: no training of it has ended, so there is nothing to record")
        masks = {mask for one in home.graph if one.mask and home.mask(mask := one.mask.as_made).exists()}
        for mask in masks:
            read_own_mask(home, mask)  # raises Refused if it is damaged or belongs to another run
            _copy(home.mask(mask), whole / "masks" / f"{mask.name}.h5")
        for source in (path for path in (home.pool / "autotuned").rglob("[!.]*") if path.is_file()):
            there = whole / source.relative_to(home.pool)
            if there.exists() and there.read_bytes() != source.read_bytes():  # results depend on these choices
                raise Refused(f"{to}: has another choice of XLA than {source}; expected a folder without it")
            _copy(source, there)
        files.write_text(described, experiment_file.record(_anywhere(home.experiment)))
        packed.pack(whole, to)
    finals = [to / packed.WEIGHTS / f"{one.name}.h5" for one in home.graph]
    for one, there in zip(home.graph, finals, strict=True):
        if weights and home.done(one) and (final := home.snapshot(one, END)).exists():
            files.write_bytes(there, final.read_bytes())
    written = [path for path in (described, *(to / name for name in packed.PACKED), *finals) if path.exists()]
    return Recorded(ended, len(masks), len({*written} & {*finals}), sum(path.stat().st_size for path in written))


def _refuse_place(home: Home, to: Path) -> None:
    results = home.root.parent
    pool, place = results.resolve(), to.resolve()
    if place.is_relative_to(pool) or pool.is_relative_to(place):
        raise Refused(f"--to {to}: the results themselves lie there ({results}); expected a folder beside them")
    if (to / "trainings").exists():
        raise Refused(f"--to {to}: a folder of results, or a record of an earlier version; expected another one "
                      f"(lottery record {to}/EXPERIMENT --to ANOTHER packs it)")  # fmt: skip


def _refuse_narrower(home: Home, described: Path) -> None:
    if not described.exists():
        return
    asked = {one.name for one in graph_of(experiment_file.load(described))}
    if lacking := asked - {one.name for one in home.graph}:
        raise Refused(f"{described}: asks for {len(lacking)} trainings that {home.root} does not; expected all of them "
                      "here too: give the fields that are narrower, such as seeds=[0,1,2]")  # fmt: skip


def _copy_training(folder: Path, there: Path, to: Path) -> bool:
    """Copy a training if it has ended and return whether it has; raise Refused if damaged or another run is on record.

    A failure does not replace a result on record. A training done again with the same numbers is the same run, even if
    its times differ.
    """
    result, known = (files.read_json_if_there(path / DONE, RESULT) for path in (folder, there))
    failure = files.read_json_if_there(folder / FAILED, REASON)
    if not (result or ((failure or (folder / SKIPPED).exists()) and not known)):
        return False
    if result and known and _numbers(result) != _numbers(known):
        raise Refused(f"{to}: has another run of {folder.name} than {folder / DONE}; expected a folder without it")
    files.read_json_if_there(folder / "training.json")
    metrics_of(folder) if result else files.read_metrics(folder)
    shutil.rmtree(there, ignore_errors=True)
    for name in ("training.json", "metrics.jsonl", SKIPPED, DONE):
        _copy(folder / name, there / name)
    if failure:
        files.write_json(there / FAILED, failure | {"traceback": ""})  # the traceback names folders of this machine
    return True


def _numbers(result: dict[str, Any]) -> str:
    return json.dumps([result.get(name) for name in NUMBERS])  # as text, so that NaN equals NaN


def _copy(source: Path, there: Path) -> None:
    there.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):  # it does not have this file, or is being trained again now
        shutil.copyfile(source, there)


def _anywhere(experiment: Experiment) -> Experiment:
    """Return the experiment without paths and names of this machine and its users, which change no result."""
    data, source = (replace(one, path="", cache="") for one in (experiment.data, experiment.transfer.data))
    cluster = replace(experiment.cluster, partition="", account="", qos="", options=(), setup=(), container="")
    model, transfer = replace(experiment.model, weights=""), replace(experiment.transfer, data=source)
    track = replace(experiment.track, entity="")
    return replace(experiment, model=model, data=data, transfer=transfer, cluster=cluster, track=track)
