"""Evaluation: what a network makes of images, with a training and without one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from models import Weights
from sweep import files
from sweep.experiment import END
from sweep.graph.mask_file import make_mask
from sweep.graph.snapshot_file import read_weights
from sweep.work.find import read_home
from tests.conftest import connected_mask, smaller, tiny
from tests.trainings import assert_equal_bits, epoch

pytestmark = pytest.mark.tensorflow


def test_evaluation_counts_every_image_once_whatever_the_last_batch(program):
    import tensorflow as tf

    from sweep.data import augment

    run = program(tiny())
    weights = run.network.initial(0)
    run.load(weights)
    test = run.dataset.test  # 74 images
    images = augment.normalised(test.images, run.dataset.mean, run.dataset.deviation, tf.float32)
    logits = run.network.apply(Weights(*map(tf.constant, weights)), images, False)[0].numpy()
    top1 = (logits.argmax(1) == test.labels).mean()
    losses = -tf.nn.log_softmax(logits).numpy()[np.arange(len(test)), test.labels]
    found = run.evaluation.metrics(test)
    assert found["top1"] == pytest.approx(top1, abs=1e-9) and found["top5"] == 1.0  # 4 classes
    assert found["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    few = test.take(np.arange(3))
    assert run.evaluation.metrics(few)["top1"] == pytest.approx((logits[:3].argmax(1) == few.labels).mean())


def test_images_are_standardised_one_by_one_after_the_crop_in_training_and_as_they_are_in_evaluation(program):
    import tensorflow as tf

    from sweep.data import augment

    run = program(replace(tiny(), data=replace(tiny().data, normalised="image")))
    weights, first = run.network.initial(0), epoch(run)
    run.load(weights)

    def loss(images, labels, training: bool) -> float:
        mean, deviation = (found((1, 2, 3), keepdims=True) for found in (images.mean, images.std))
        logits = run.network.apply(weights, ((images - mean) / deviation).astype(np.float32), training)[0]
        return float(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)))

    train, test, rows = run.dataset.train, run.dataset.test, first.order[0]
    tops, lefts, flips = (
        augment.uniform(first.seeds[0], purpose, len(rows), (0, 1), 0, high)
        for purpose, high in ((1, 3), (2, 3), (3, 2))
    )
    cropped = augment.flipped(augment.cropped(tf.constant(train.images[rows]), 1, tops, lefts), flips).numpy()
    assert run.evaluation.metrics(test)["loss"] == pytest.approx(loss(test.images, test.labels, False), rel=1e-4)
    run.run(first, 0, 1)
    assert run.take_sums()[0] / len(rows) == pytest.approx(loss(cropped, train.labels[rows], True), rel=1e-4)


def test_a_network_that_answers_nan_is_right_about_nothing(program):
    run = program(smaller())
    weights = run.network.initial(0)
    run.load(weights._replace(others=np.full_like(weights.others, np.nan)))
    assert run.evaluation.metrics(run.dataset.test)["top1"] == 0.0


@pytest.fixture
def alone(devices):
    """Evaluates snapshots of the tiny sweep, and has no training images at all."""
    from sweep.data import open_dataset
    from sweep.training.evaluation import Evaluation

    dataset = open_dataset(tiny().data)

    def make(network, **recipe):
        return Evaluation(network, tiny(**recipe).recipe, dataset.mean, dataset.deviation, devices), dataset.test

    return make


def test_without_training_every_accuracy_on_record_comes_out_to_the_bit(alone, undisturbed):
    home = read_home("tiny", (), undisturbed)
    for training in home.graph:
        network, weights, _ = read_weights(home.snapshot(training, END))
        evaluation, test = alone(network)
        evaluation.load(weights, make_mask(home, training.mask).mask if training.mask else None)
        assert evaluation.metrics(test) == files.read_json(home.folder(training) / "result.json")["test"]


@pytest.mark.parametrize("recipe", [{}, {"batch": 300}, {"xla": "on"}])
def test_logits_are_those_of_every_image_in_its_place(alone, program, recipe):
    """Of more images than a batch has, and the same for an image whichever stand beside it."""
    network = program(smaller()).network
    evaluation, test = alone(network, **recipe)
    evaluation.load(network.initial(3))
    many = test.take(np.arange(600) % len(test))
    logits = evaluation.logits(many)
    assert logits.shape == (600, 4) and logits.dtype == np.float32
    np.testing.assert_allclose(logits, evaluation.logits(test)[np.arange(600) % len(test)], rtol=1e-4, atol=1e-5)
    assert evaluation.metrics(many)["top1"] == pytest.approx((logits.argmax(1) == many.labels).mean())


def test_a_mask_is_laid_on_the_weights_that_are_evaluated(alone, program):
    network = program(smaller()).network
    evaluation, test = alone(network)
    weights, mask = network.initial(0), connected_mask(network)
    evaluation.load(weights, mask)
    assert_equal_bits(evaluation.weights(), weights._replace(kernels=np.where(mask, weights.kernels, np.float32(0))))
    masked = evaluation.logits(test)
    evaluation.load(weights)
    assert not np.array_equal(masked, evaluation.logits(test))
