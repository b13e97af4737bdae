"""Speeds of training on kinds of GPU, as measured by `lottery bench packing` and kept in packing.json of a pool."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from sweep import files
from sweep.experiment import Experiment

FILE = "packing.json"


@dataclass(frozen=True)
class Packing:
    """The measurement of several trainings on one GPU."""

    hardware: str
    network: str
    per_gpu: int
    images_per_second: float  # of all trainings together
    start_seconds: float  # time until the slowest has done its first step
    epoch_images: int  # training images of one epoch

    def tickets_per_hour(self, epochs: float, in_a_row: int) -> float:
        """Return tickets per GPU-hour if every process trains `in_a_row` tickets, which start up once."""
        seconds = epochs * self.epoch_images * self.per_gpu / self.images_per_second
        return 3600 * self.per_gpu * in_a_row / (self.start_seconds + in_a_row * seconds)


def network_of(experiment: Experiment) -> str:
    """Return a description of what decides the speed of a training: network, data, precision, batch."""
    model, data, recipe = experiment.model, experiment.data, experiment.recipe
    size = f", {data.image_size} px" if data.image_size else ""
    return f"{model.title} on {data.name}{size}, {recipe.precision}, batch {recipe.batch}"


def measured(pool: Path) -> list[Packing]:
    """Return the measurements of this pool."""
    path = pool / FILE
    found = files.read_json_if_there(path, {"measured": list}) or {"measured": []}
    return [files.as_record(row, Packing, path) for row in found["measured"]]


def put_on_record(pool: Path, rows: list[Packing]) -> Path:
    """Write measurements to packing.json; a new one replaces an older one of the same network and GPU."""
    new = {(row.hardware, row.network, row.per_gpu) for row in rows}
    kept = [row for row in measured(pool) if (row.hardware, row.network, row.per_gpu) not in new]
    pool.mkdir(parents=True, exist_ok=True)
    files.write_json(pool / FILE, {"measured": [asdict(row) for row in [*kept, *rows]]})
    return pool / FILE


def alike_in(rows: Iterable[Packing], experiment: Experiment) -> list[Packing]:
    """Return the measurements of this network at this image size and precision, with any data."""
    model, data, recipe = experiment.model, experiment.data, experiment.recipe
    begin, middle = f"{model.title} on ", f", {data.image_size} px, {recipe.precision}, batch "
    return [row for row in rows if row.per_gpu == 1 and row.network.startswith(begin) and middle in row.network]
