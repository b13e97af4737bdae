"""What only the data can tell of an experiment, refused before anything is written or submitted."""

from __future__ import annotations

from sweep.data import Dataset, open_dataset, refuse_absent
from sweep.experiment import Experiment
from sweep.training.schedule import check_batch, check_points, check_size


def fitting(experiment: Experiment) -> Dataset:
    """Return the data of an experiment; raise Refused unless it fills a batch and has the size and steps asked for."""
    refuse_absent(experiment.data)
    dataset = open_dataset(experiment.data)
    check_batch(experiment.recipe, len(dataset.train))
    check_size(experiment.recipe, dataset.image_size)
    check_points(experiment, len(dataset.train))
    return dataset
