"""The plan of a sweep: its trainings in the order they are started, what is done, and predicted times."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slurm import sbatch
from slurm.reading import Reading, images_of, reading_of
from sweep.experiment.point import in_order
from sweep.graph.home import Home
from sweep.graph.results import collect, images_tested, results_of
from sweep.graph.speeds import FILE, alike_in, measured, network_of
from sweep.graph.state import Cost, Forecast, cost_of, epochs_left, forecast, missing, predicted_seconds
from sweep.hardware import hardware
from sweep.progress import duration
from sweep.report.verdict import power
from sweep.work.find import SHIPPED


@dataclass(frozen=True)
class Planned:
    """One training of a plan."""

    task: str
    training: str  # its name in the pool
    kind: str
    generation: int
    rewind: str
    epochs: float
    left: float  # epochs still to be trained
    state: str  # missing, done, or skipped (a layer is fully pruned)
    seconds: float | None  # predicted time of all its epochs; None before the dense run was measured
    again: list[str]  # points of a finished training whose weights are needed and missing, so that it is trained again

    @property
    def seconds_left(self) -> float | None:
        """Return the predicted time of the epochs still to be trained; None before the dense run was measured."""
        return None if self.seconds is None else self.seconds * self.left / (self.epochs or 1)


@dataclass(frozen=True)
class Estimate:
    """The estimated time of a sweep before anything is measured, from a recorded speed of the same network."""

    seconds: float  # for one training after the other, on one device
    hardware: str
    source: str
    at_a_time: int = 1
    price: float = 0.0  # per hour of a device; 0 = unknown

    def __str__(self) -> str:
        took = f"{duration(self.seconds)} on {self.hardware}, one training at a time"
        if self.at_a_time > 1:
            took += f"; at least {duration(self.seconds / self.at_a_time)} with {self.at_a_time} at a time"
        if self.price:
            took += f"; {self.price * self.seconds / 3600:,.0f} at {self.price:g} an hour"
        return f"Estimate: {took}, without start-up, by the speed of this network in {self.source}."


@dataclass(frozen=True)
class Plan:
    """What `lottery plan` prints, also as JSON, and what `Sweep.plan` returns."""

    folder: str
    at_least_seconds: float | None  # lower bound for any order; None before the dense run was measured
    forecast: Forecast | None  # None before a ticket or control was done
    cost: Cost
    trainings: list[Planned]
    on: str
    at_a_time: int  # number of trainings at a time
    power: str  # which differences the seeds can detect; empty without tickets
    estimate: Estimate | None  # None if times are measured, or no speed is on record
    reading: Reading | None  # speed of reading images from disk, on SLURM

    @property
    def missing(self) -> list[Planned]:
        """Return the trainings that are not done, and those to be trained again for lost weights."""
        return [one for one in self.trainings if one.state == "missing"]


def make_plan(home: Home, on: str = "local", jobs: int = 1) -> Plan:
    """Return the plan of a sweep on SLURM, or on this machine or MPI with `jobs` trainings at a time."""
    cluster = home.experiment.cluster
    on_each = cluster.gpus_per_cell if on == "slurm" else 0  # elsewhere as many devices as the dense run had
    so_far, lacking, begun = forecast(home), home.missing_points(), home.folders()
    ratio, predicted = so_far.ratio if so_far else 1.0, predicted_seconds(home, on_each) or {}
    left = {
        training.name: epochs_left(home, training, lacking.get(training.name, ()))
        if training.name in begun
        else training.epochs
        for training in missing(home)
    }
    rows = [
        Planned(
            task=training.slug,
            training=training.name,
            kind=training.kind,
            generation=training.generation,
            rewind=str(training.rewound),
            epochs=training.epochs,
            left=left.get(training.name, 0.0),
            state="missing" if training.name in left else "skipped" if home.skipped(training) else "done",
            seconds=predicted[training.slug] * ratio if training.slug in predicted else None,
            again=in_order(map(str, lacking.get(training.name, ()))),
        )
        for training in home.graph
    ]
    at_a_time = sbatch.together(cluster) if on == "slurm" else jobs
    seconds = [row.seconds_left for row in rows if row.state == "missing" and row.seconds_left is not None]
    bound = max(sum(seconds) / at_a_time, *seconds) if seconds else None
    guess = None if predicted else _estimate(home, sum(left.values()), at_a_time)
    images = images_tested(results_of(home)) or images_of(home.experiment, "test")
    shown = power(collect(home, costs=False), images=images)
    fed = reading_of(home) if on == "slurm" else None
    return Plan(str(home.root), bound, so_far, cost_of(home), rows, on, at_a_time, shown, guess, fed)


def _estimate(home: Home, epochs: float, at_a_time: int) -> Estimate | None:
    """Return the time of so many epochs by a measurement in this pool or a shipped one, preferably on like hardware."""
    found, price = [], home.experiment.cluster.price_per_gpu_hour
    for folder in (home.pool, SHIPPED):
        rows = measured(folder)
        alike = [row for row in rows if row.per_gpu == 1 and row.network == network_of(home.experiment)]
        if not alike and (images := images_of(home.experiment)):  # the speed with other images
            alike = [replace(row, epoch_images=images) for row in alike_in(rows, home.experiment)]
        found += [
            Estimate(epochs * row.epoch_images / row.images_per_second, row.hardware, f"{folder.name}/{FILE}",
                     at_a_time, price) for row in alike
        ]  # fmt: skip
    return min(found, key=lambda one: one.hardware != hardware(), default=None) if epochs else None
