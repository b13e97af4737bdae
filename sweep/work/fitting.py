"""Checks of an experiment that need its data, done before anything is written or submitted."""

from __future__ import annotations

from sweep.data import Dataset, open_dataset, refuse_absent
from sweep.errors import Refused
from sweep.experiment import Data, Experiment, Recipe
from sweep.training.schedule import check_batch, check_points, check_size


def fitting(experiment: Experiment) -> Dataset:
    """Return the data set of an experiment; raise Refused if batch, image size or points do not fit it."""
    dataset = _fitting(experiment.data, experiment.recipe, "data")
    source = dataset
    if experiment.transfer.source:
        source = _fitting(experiment.source.data, experiment.source.recipe, "transfer.data")
        if source.channels != dataset.channels:
            raise Refused(f"data.channels: {dataset.name} has {dataset.channels} and {source.name} {source.channels}; "
                          "expected as many, as with rgb for grey images")  # fmt: skip
    check_points(experiment, len(source.train))
    return dataset


def _fitting(data: Data, recipe: Recipe, section: str) -> Dataset:
    refuse_absent(data, section)
    dataset = open_dataset(data)
    check_batch(recipe, len(dataset.train))
    check_size(recipe, dataset.image_size)
    return dataset
