"""Metrics of predictions from logits and labels: accuracy, loss, per class, confusion and calibration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import softmax

BINS = 15  # bins of confidence, as in Guo et al. 2017


@dataclass(frozen=True)
class Predictions:
    """The logits `[images, classes]` of a network for images, and their labels `[images]`."""

    logits: np.ndarray
    labels: np.ndarray

    @cached_property
    def probabilities(self) -> np.ndarray:
        return np.asarray(softmax(self.logits.astype(np.float64), 1))

    @cached_property
    def answers(self) -> np.ndarray:
        """Return the most likely class of every image."""
        return self.logits.argmax(1)

    @property
    def top1(self) -> float:
        return float((self.answers == self.labels).mean())

    @property
    def top5(self) -> float:
        """Return the share of images whose label has fewer than 5 classes above it, as tf.math.in_top_k counts."""
        own = np.take_along_axis(self.logits, self.labels[:, None], 1)
        return float(((self.logits > own).sum(1) < 5).mean())

    @property
    def loss(self) -> float:
        """Return the mean cross-entropy in nats."""
        own = np.take_along_axis(self.probabilities, self.labels[:, None], 1)
        return float(-np.log(np.maximum(own, np.finfo(np.float64).tiny)).mean())

    def confusion(self) -> np.ndarray:
        """Return the confusion matrix `[classes, classes]` of counts: row = label, column = answer."""
        classes = self.logits.shape[1]
        return np.bincount(self.labels * classes + self.answers, minlength=classes**2).reshape(classes, classes)

    def per_class(self) -> np.ndarray:
        """Return the accuracy of every class `[classes]`; NaN for a class without images."""
        counts = self.confusion()
        with np.errstate(invalid="ignore"):
            return np.asarray(np.diag(counts) / counts.sum(1))

    def calibration(self) -> tuple[float, list[tuple[float, float, int]]]:
        """Return the expected calibration error and its bins (mean confidence, accuracy, images).

        ECE = Σ_b |b| / n · |accuracy(b) − confidence(b)| over BINS bins of equal width (Guo et al. 2017, equation 3).

        >>> sure = np.array([[9.0, 0.0], [9.0, 0.0]])
        >>> round(Predictions(sure, np.array([0, 1])).calibration()[0], 3)
        0.5
        """
        confidence, right = self.probabilities.max(1), self.answers == self.labels
        place = np.minimum((confidence * BINS).astype(int), BINS - 1)
        bins = [
            (float(confidence[place == b].mean()), float(right[place == b].mean()), int((place == b).sum()))
            for b in range(BINS)
            if (place == b).any()
        ]
        return sum(abs(hit - sure) * count for sure, hit, count in bins) / len(right), bins
