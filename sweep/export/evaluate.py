"""The evaluation of a finished training, or of an exported file, on images."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from sweep import files
from sweep.data import Dataset, Images, Split, SplitName, open_dataset
from sweep.data.feed import feed
from sweep.data.folder import class_files
from sweep.devices import Devices, first, prepare
from sweep.errors import Refused, cut
from sweep.experiment import Data
from sweep.experiment.sources import SOURCES
from sweep.export import formats
from sweep.export.metrics import Predictions
from sweep.export.subject import final_weights, normalised
from sweep.graph.home import Home
from sweep.graph.results import EVALUATION
from sweep.graph.training import Training
from sweep.training.evaluation import Evaluation, pixels

BATCH = 256  # images given to an exported file at a time


def evaluated(home: Home, training: Training, dataset: Dataset, split: Split, devices: Devices) -> Predictions:
    """Return the logits of a training for images, computed as in the training's own evaluation.

    `dataset` is the one it was trained on, which decides how pixels are normalised.
    """
    network, weights = final_weights(home, training)
    evaluation = Evaluation(network, training.recipe, dataset.mean, dataset.deviation, devices)
    evaluation.load(weights)
    return Predictions(evaluation.logits(split), np.asarray(split.labels))


def evaluated_file(path: Path, facts: dict[str, Any], split: Split) -> Predictions:
    """Return the predictions of an exported file for images, by its own library; `facts` are its lottery.json."""
    run = formats.format_of(path, "float32").run
    if run is None:
        raise Refused(
            f"{path}: has arrays and computes nothing; expected a .keras, .tflite or .onnx file or a SavedModel"
        )
    images = in_memory(split, len(split), facts["image_size"])
    if not facts["preprocessing"]:
        images = normalised(images, facts["scale"], facts["offset"])
    outputs = np.concatenate([run(path, images[first : first + BATCH]) for first in range(0, len(images), BATCH)])
    if facts["outputs"] == "probabilities":
        outputs = np.log(np.maximum(outputs, 1e-30))
    return Predictions(outputs, np.asarray(split.labels))


def pictures_in(folder: Path, names: Sequence[str], size: int, channels: int) -> Images:
    """Return the pictures of class folders as `[n, size, size, channels]`, resized."""
    from PIL import Image

    from sweep.data.prepare import eight_bits

    found = class_files(folder, names)

    def read(path: str) -> np.ndarray:
        try:
            picture = eight_bits(Image.open(path)).convert("RGB" if channels == 3 else "L")
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise Refused(f"--on {path}: {cut(' '.join(str(error).split()))}; expected a picture") from None
        return np.asarray(picture.resize((size, size), Image.Resampling.BILINEAR)).reshape(size, size, channels)

    return Images(np.stack([read(path) for path in found.paths]), found.labels)


def in_class_folders(folder: Path, names: Sequence[str], size: int, channels: int, centre: bool) -> tuple[Split, str]:
    """Return the pictures of class folders, and a name for them: their central squares, or the whole pictures."""
    try:
        split = class_files(folder, names) if centre else pictures_in(folder, names, size, channels)
    except Refused as error:
        raise Refused(str(error).replace("data.path: ", "--on: ")) from None
    return split, f"images in {folder}"


def has_classes(folder: Path, names: Sequence[str]) -> bool:
    """Whether there are folders named by the classes in a folder; raise Refused if it is not there."""
    if not folder.exists():
        raise Refused(f"--on {folder}: no such folder")
    return any((folder / name).is_dir() for name in names)


def images_of(trained_on: Dataset, data: Data, path: Path | None, name: SplitName) -> tuple[Split, str]:
    """Return the images to evaluate on, and a name for them.

    They are a split of the training's data or, with a path, of another copy of such data, or pictures in class folders.
    """
    dataset, centre = trained_on, not isinstance(trained_on.test, Images)
    if path is not None and has_classes(path, trained_on.class_names):
        return in_class_folders(path, trained_on.class_names, dataset.image_size, dataset.channels, centre)
    if path is not None:
        classes = f"folders named by the classes ({cut(', '.join(trained_on.class_names))}) in it"
        if not SOURCES[data.name].wants:  # it would be read without looking there
            raise Refused(f"--on {path}: expected {classes}")
        try:
            dataset = open_dataset(replace(data, path=str(path), listing="", validation=0))
        except Refused as error:
            why = str(error).removeprefix("data.path: ")
            raise Refused(f"--on {path}: neither {classes} nor laid out like the data set: {why}") from None
        if dataset.classes != trained_on.classes or dataset.class_names != trained_on.class_names:
            raise Refused(f"--on {path}: classes {', '.join(dataset.class_names)}; expected those of the training: "
                          f"{', '.join(trained_on.class_names)}")  # fmt: skip
    split: Split = getattr(dataset, name)
    if not len(split):
        raise Refused(f"--split {name}: it has no images; expected test, train, or data.validation above 0")
    return split, f"{name} images of {path or dataset.name}"


def as_json(found: Predictions, names: Sequence[str]) -> dict[str, Any]:
    """Return all metrics of the predictions as plain values for JSON."""
    error, bins = found.calibration()
    each = [None if np.isnan(share) else float(share) for share in found.per_class()]
    return {
        "images": len(found.labels), "top1": found.top1, "top5": found.top5, "loss": found.loss,
        "calibration_error": error, "per_class": dict(zip(names, each, strict=True)),
        "confusion": found.confusion().tolist(),
        "calibration": [{"confidence": sure, "accuracy": hit, "images": count} for sure, hit, count in bins],
    }  # fmt: skip


def record(home: Home, training: Training, described: dict[str, Any]) -> None:
    """Write the metrics of the test images to the training's folder, where the report reads them."""
    folder = home.folder(training)
    if os.access(folder, os.W_OK):  # the results of others may be read-only
        files.write_json(folder / EVALUATION, described)


def write_predictions(path: Path, found: Predictions, names: Sequence[str], split: Split) -> None:
    """Write a CSV with one line per image: index, file, label, answer, confidence, all probabilities."""
    where = [str(one) for one in getattr(split, "paths", [""] * len(found.labels))]
    with files.replacing(path) as beside, open(beside, "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(["image", "file", "label", "answer", "confidence", *names])
        for i, (label, answer) in enumerate(zip(found.labels, found.answers, strict=True)):
            shares = found.probabilities[i]
            out.writerow(
                [i, where[i], names[label], names[answer], f"{shares.max():.6f}", *(f"{p:.6f}" for p in shares)]
            )


def in_memory(split: Split, most: int, size: int) -> np.ndarray:
    """Return up to `most` images, evenly spaced in the split, as evaluation sees them: uint8 `[n, size, size, c]`."""
    chosen = split.take(np.unique(np.linspace(0, len(split) - 1, min(most, len(split))).astype(int)))
    if isinstance(chosen, Images):
        return chosen.images
    order = np.arange(len(chosen), dtype=np.int32)[None]
    batch = next(iter(feed(chosen, first(prepare(), 1), size).batches(order, None)))
    return np.asarray(tf.cast(tf.round(tf.cast(pixels(batch, size)[0], tf.float32)), tf.uint8))
