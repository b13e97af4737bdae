"""Stages of image size with a batch each: where steps and epochs lie, and a training through them."""

from __future__ import annotations

import numpy as np
import pytest

from sweep import files
from sweep.errors import Refused
from sweep.experiment import Recipe, point
from sweep.experiment.stage import stage
from sweep.training import schedule
from sweep.training.start import Start
from tests.conftest import tiny
from tests.trainings import assert_equal_bits, epoch, start_at, trained, trained_in_pieces

THREE = Recipe(epochs=6, batch=4, reference_batch=4, schedule="constant",
               stages=(stage("8px/8"), stage("12px/6@2ep"), stage("16px@4ep")))  # fmt: skip
IMAGES = 26  # an epoch takes 24 of them, six steps of four


def test_steps_lie_where_the_batches_of_the_stages_put_them():
    plans = [schedule.epoch_of(THREE, 0, number, IMAGES, 16) for number in range(6)]
    assert [plan.order.shape for plan in plans] == [(3, 8), (3, 8), (4, 6), (4, 6), (6, 4), (6, 4)]
    assert [plan.image_size for plan in plans] == [8, 8, 12, 12, 16, 16]
    assert [len(plan.learning_rates) == len(plan.seeds) == len(plan.mixing) == len(plan.order) for plan in plans]
    before = [THREE.steps_before(number, 6) for number in range(7)]
    assert before == [0, *np.cumsum([len(plan.order) for plan in plans])]
    places = [(number, step) for number, plan in enumerate(plans) for step in range(len(plan.order))]
    assert [THREE.epoch_at(step, 6) for step in range(before[-1])] == places
    assert [point(text).step(THREE, 6) for text in ("0", "2ep", "5ep", "7it", "end")] == [0, 6, 20, 7, 26]


def test_the_rate_grows_with_the_batch_where_a_batch_is_named_for_it():
    rates = [float(schedule.rates_of(THREE, number, 6, False)[0]) for number in (0, 2, 4)]
    assert rates == pytest.approx([0.2, 0.15, 0.1])


def test_without_stages_every_epoch_is_alike():
    recipe = Recipe(epochs=30)
    assert recipe.steps_before(7, 390) == 7 * 390 and recipe.epoch_at(7 * 390 + 5, 390) == (7, 5)


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (Recipe(batch=16, stages=(stage("8px/32"), stage("8px@1ep"))), "a batch of 32, expected at most the 16 images"),
        (Recipe(batch=4, stages=(stage("99px"),)), "recipe.stages: 99px, expected at most the images' 16 pixels"),
    ],
)
def test_a_stage_that_the_images_do_not_fill_is_refused(recipe, said):
    with pytest.raises(Refused, match=said):
        schedule.check_batch(recipe, IMAGES)
        schedule.check_size(recipe, 16)


def test_devices_that_one_stage_alone_could_share_are_not_advised():
    recipe = Recipe(batch=64, norm_images=32, stages=(stage("8px/128"), stage("8px/96@1ep"), stage("8px@2ep")))
    with pytest.raises(Refused, match="expected --devices 1,"):
        schedule.check_devices(recipe, 2)
    assert schedule.most_devices(recipe, 4) == 1


@pytest.mark.tensorflow
def test_stopped_after_any_step_a_training_through_stages_ends_with_the_same_bits(program, tmp_path, monkeypatch):
    from models import Network

    seen, apply = [], Network.apply

    def watched(self, weights, images, training, *rest, **more):
        seen.extend([tuple(images.shape[:2])] if training else [])
        return apply(self, weights, images, training, *rest, **more)

    monkeypatch.setattr(Network, "apply", watched)
    run = program(tiny(stages=(stage("4px/32"), stage("8px/16@1ep"))))
    whole, weights = trained(run, start_at(run), tmp_path / "whole")
    assert seen == [(32, 4), (16, 8)]  # traced once each
    pieces, end = trained_in_pieces(run, start_at(run), tmp_path / "pieces")
    assert_equal_bits(end, weights)
    assert (pieces.test, pieces.epochs) == (whole.test, 3)
    ticket = Start(run.network.initial(5), 3, 0)  # two steps are the first epoch
    outcome, _ = trained(run, ticket, tmp_path / "ticket")
    assert outcome.epochs == 1.75
    run.load(run.network.initial(5))
    run.run(epoch(run, 1), 1, 4)
    first = files.read_metrics(tmp_path / "ticket")[0]
    assert first["epoch"] == 2 and first["train_loss"] == pytest.approx(run.take_sums()[0] / (3 * 16))
