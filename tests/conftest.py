"""Small experiments that train for real in seconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from models import Network
from sweep.experiment import Data, Experiment, Model, Prune, Recipe


def tiny(**recipe: Any) -> Experiment:
    """A very narrow ResNet-20 on made-up images of 8 pixels: 3 epochs of 4 steps."""
    settings = {"epochs": 3, "batch": 16, "learning_rate": 0.05, "weight_decay": 1e-3, "nesterov": True} | recipe
    return Experiment(
        name="tiny",
        model=Model("resnet20", 0.25),
        data=Data("synthetic", image_size=8, classes=4, images=74, validation=10, pad=1, flip=True),
        recipe=Recipe(**settings),
        prune=Prune(quantiles=(0.5, 0.8), scope="layerwise", rewind_epochs=(0, 1)),
    )


def connected_mask(network: Network, quantile: float = 0.7, seed: int = 1) -> np.ndarray:
    """A random mask that leaves something of every kernel: one that cuts the network through would test nothing."""
    from sweep.masks import kernel_sizes, layerwise

    values = np.random.default_rng(seed).normal(size=network.prunable)
    return layerwise(values, kernel_sizes(network), quantile).mask


@pytest.fixture(scope="session", autouse=True)
def devices() -> Any:
    """TensorFlow's devices are set up once per process, before the first test that computes anything."""
    from sweep.devices import prepare

    return prepare()


@pytest.fixture(scope="session")
def program(devices) -> Callable[..., Any]:
    """Makes the program of an experiment on one device; equal experiments share one, as the cells of a sweep do."""
    from sweep.data import open_dataset
    from sweep.program import Program

    made: dict[Any, Any] = {}

    def make(experiment: Experiment, use_mask: bool = True) -> Any:
        key = (dataclasses.replace(experiment, prune=Prune()), use_mask)
        if key not in made:
            made[key] = Program(experiment, open_dataset(experiment.data), devices, use_mask)
        return made[key]

    return make
