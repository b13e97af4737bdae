"""The experiment file: fields, checks, reading and writing."""

from sweep.experiment.fields import Cluster, Data, Experiment, Model, Prune, Recipe, Track, Transfer, identity
from sweep.experiment.file import check
from sweep.experiment.method import Method, method
from sweep.experiment.point import BEGINNING, END, Point, point

__all__ = [
    "BEGINNING", "END", "Cluster", "Data", "Experiment", "Method", "Model", "Point", "Prune", "Recipe",
    "Track", "Transfer", "check", "identity", "method", "point",
]  # fmt: skip
