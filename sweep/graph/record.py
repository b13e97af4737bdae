"""The record of an experiment: all of it but weights, small enough for a repository or a paper's supplement.

Of every training that ended: what was asked, what came out, every epoch; the masks; what XLA chose; tables and figures.
From it the report is drawn again, figures are checked, and the sweep goes on elsewhere: where weights are needed, their
training is done again and must come out the same (sweep.work.again).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sweep import files
from sweep.errors import Refused
from sweep.experiment import Experiment
from sweep.experiment import file as experiment_file
from sweep.graph.home import Home

ENDS = ("result.json", "failure.json", "skipped.json")
OF_A_TRAINING = ("training.json", "metrics.jsonl", *ENDS)
PAGE = "report.html"  # the largest of all, and drawn again in seconds


@dataclass(frozen=True)
class Recorded:
    trainings: int
    masks: int
    bytes: int


def record(home: Home, to: Path) -> Recorded:
    """Write it to a folder, or bring up to date what is there. One folder takes several experiments."""
    if to.resolve().is_relative_to(home.pool.resolve()):
        raise Refused(f"--to {to}: inside the results themselves ({home.pool}); expected another folder")
    found = {source.relative_to(home.pool): source for source in _ended(home)}
    if not found:
        raise Refused(f"{home.root}: no training of it has ended, so there is nothing to record")
    for name, source in found.items():
        if name.name == "result.json" and (to / name).exists() and (to / name).read_bytes() != source.read_bytes():
            raise Refused(f"{to / name}: the result of another run than {source}; expected a folder without it")
    masks = [path for one in home.graph if one.mask and (path := home.mask(one.mask)).exists()]
    others = [*masks, *_files(home.pool / "autotuned"), *(one for one in _files(home.report) if one.name != PAGE)]
    found |= {source.relative_to(home.pool): source for source in others}
    for name, source in found.items():
        with files.replacing(to / name) as beside:
            shutil.copyfile(source, beside)
    ended = {name.parent for name in found if name.name in ENDS}
    for name in (folder / end for folder in ended for end in ENDS):
        if name not in found:  # it had failed, and did not when it was tried again
            (to / name).unlink(missing_ok=True)
    described = to / home.root.name / "experiment.yaml"
    files.write_text(described, experiment_file.record(_anywhere(home.experiment)))
    written = [described, *(to / name for name in found)]
    return Recorded(len(ended), len(set(masks)), sum(path.stat().st_size for path in written))


def _ended(home: Home) -> Iterator[Path]:
    for training in home.graph:
        folder = home.folder(training)
        if any((folder / name).exists() for name in ENDS):
            yield from (path for name in OF_A_TRAINING if (path := folder / name).exists())


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("[!.]*")) if path.is_file()]


def _anywhere(experiment: Experiment) -> Experiment:
    """Without the places of this machine, which decide no number."""
    return replace(experiment, data=replace(experiment.data, path="", cache=""))
