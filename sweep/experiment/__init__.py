"""What is asked: fields, checks, files."""

from sweep.experiment.checks import check
from sweep.experiment.fields import (
    Cluster,
    ControlKind,
    Data,
    Experiment,
    Model,
    Prune,
    Recipe,
    Track,
    identity,
)
from sweep.experiment.point import BEGINNING, END, Point, point

__all__ = [
    "BEGINNING", "END", "Cluster", "ControlKind", "Data", "Experiment", "Model", "Point", "Prune", "Recipe", "Track",
    "check", "identity", "point",
]  # fmt: skip
