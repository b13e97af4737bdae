"""A finished training as others can use it: weights, preprocessing, class names and origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from models import Network, Weights
from sweep import files
from sweep.data import Dataset, Images
from sweep.data.windows import MARGIN
from sweep.errors import Refused
from sweep.experiment import END
from sweep.graph.home import RESULT, Home
from sweep.graph.snapshot_file import read_weights
from sweep.graph.training import Task
from sweep.hardware import version_of

Precision = Literal["float32", "float16", "int8"]


@dataclass(frozen=True)
class Wanted:
    """The options of an exported file, and uint8 images of the training split to calibrate int8 with."""

    precision: Precision = "float32"
    sparse: bool = True  # store pruned weights compressed, if the format can
    preprocessing: bool = True  # take uint8 images; if False, normalised float32 images
    probabilities: bool = True  # return probabilities; if False, logits
    samples: np.ndarray | None = None


@dataclass(frozen=True)
class Facts:
    """The description inside an exported file (lottery.json)."""

    training: str
    experiment: str
    network: str
    image_size: int
    channels: int
    # side of the central square that evaluation cuts from a photograph before it is resized to image_size, as a share
    # of its shorter side; 0: the whole picture is resized
    centre: float
    classes: list[str]
    # per channel: the network was trained on scale · pixel + offset, pixels from 0 to 255; empty: on images
    # standardised one by one, (x − mean) / max(deviation, 1/√n) over the n numbers of an image
    scale: list[float]
    offset: list[float]
    weights_remaining: float
    test_top1: float
    test_images: int | None
    outputs: str  # probabilities or logits
    preprocessing: bool  # whether the file normalises its images itself
    software: str


@dataclass(frozen=True)
class Subject:
    """A network with its final weights (pruned ones are exactly 0) and its description."""

    network: Network
    weights: Weights
    facts: Facts

    def normalised(self, images: np.ndarray) -> np.ndarray:
        """Return uint8 images normalised as in training, float32."""
        return normalised(images, self.facts.scale, self.facts.offset)

    def outputs(self, images: np.ndarray, probabilities: bool) -> np.ndarray:
        """Return the training's own outputs for uint8 images in float32, `[images, classes]`."""
        import tensorflow as tf

        logits, _ = self.network.apply(self.weights, tf.constant(self.normalised(images)), False)
        return (tf.nn.softmax(logits) if probabilities else logits).numpy()

    def keras_model(self, wanted: Wanted) -> Any:
        """Return the training as a Keras model, which can be trained further."""
        from models.keras_model import keras_model

        pixels = {"scale": self.facts.scale, "offset": self.facts.offset} if wanted.preprocessing else {}
        return keras_model(self.network, self.weights, probabilities=wanted.probabilities, **pixels)


def normalised(images: np.ndarray, scale: list[float], offset: list[float]) -> np.ndarray:
    """Return uint8 images as a network was trained on them, float32; `scale` and `offset` are those of its facts."""
    images = images.astype(np.float32)
    if scale:
        return images * np.array(scale, np.float32) + np.array(offset, np.float32)
    mean, deviation = (found((1, 2, 3), keepdims=True) for found in (images.mean, images.std))
    return (images - mean) / np.maximum(deviation, np.float32(images[0].size ** -0.5))


def final_weights(home: Home, training: Task) -> tuple[Network, Weights]:
    """Return the network of a finished training and its final weights; raise Refused if they are not there."""
    if why := home.skipped(training):
        raise Refused(f"{training.slug}: was skipped ({why}); expected a training with weights")
    if not home.snapshot(training, END).exists():
        raise Refused(f"{training.name}: its weights are not in {home.root.parent}; lottery sweep trains it (a record "
                      "has final weights if it was made with --weights)")  # fmt: skip
    return read_weights(home.snapshot(training, END))[:2]


def subject_of(home: Home, training: Task, dataset: Dataset) -> Subject:
    """Return a finished training for export; `dataset` has its normalisation and class names."""
    network, weights = final_weights(home, training)
    result = files.read_json(home.folder(training) / "result.json", RESULT)
    shape = (dataset.image_size, dataset.channels, dataset.classes)
    if shape != (network.image_size, network.channels, network.classes):
        right = f"{network.image_size}, {network.channels} and {network.classes} of {training.slug}"
        raise Refused(f"data: {shape[0]} pixels, {shape[1]} channels and {shape[2]} classes; expected {right}")
    facts = Facts(
        training.name, home.experiment.name, network.name + " with blur-pool" * network.blurred, network.image_size,
        network.channels, 0.0 if isinstance(dataset.test, Images) else MARGIN, list(dataset.class_names),
        [1.0 / (255.0 * d) for d in dataset.deviation],
        [-m / d for m, d in zip(dataset.mean, dataset.deviation, strict=True)],
        float(np.count_nonzero(weights.kernels) / weights.kernels.size), result["test"]["top1"],
        result.get("test_images"), "probabilities", True, f"lottery-sweep {version_of('lottery-sweep')}",
    )  # fmt: skip
    return Subject(network, weights, facts)
