"""Metrics of predictions, by hand-written arrays and by scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from sweep.export.metrics import Predictions


def test_the_metrics_of_three_images():
    logits = np.log(np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.5, 0.3, 0.2]]))
    found = Predictions(logits, np.array([0, 1, 2]))
    assert found.top1 == pytest.approx(2 / 3) and found.top5 == 1
    assert found.loss == pytest.approx(-np.log([0.7, 0.6, 0.2]).mean())
    assert found.confusion().tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0]]
    assert found.per_class().tolist() == [1, 1, 0]
    error, bins = found.calibration()
    assert [count for _, _, count in bins] == [1, 1, 1]
    assert error == pytest.approx((0.3 + 0.4 + 0.5) / 3)


def test_top5_counts_labels_with_fewer_than_five_classes_above_them():
    logits = np.array([[6.0, 5, 4, 3, 2, 1], [6, 5, 4, 3, 2, 1]])
    assert Predictions(logits, np.array([4, 5])).top5 == 0.5


def test_confusion_and_loss_are_those_of_scikit_learn():
    from sklearn.metrics import confusion_matrix, log_loss

    random = np.random.default_rng(0)
    logits, labels = random.normal(size=(200, 4)), random.integers(0, 4, 200)
    found = Predictions(logits, labels)
    assert (found.confusion() == confusion_matrix(labels, logits.argmax(1))).all()
    assert found.loss == pytest.approx(log_loss(labels, found.probabilities))
