"""Several replicas: four logical CPU devices under MirroredStrategy, in a process of their own.

TensorFlow's devices are set up once per process, so each scenario runs `python -m tests.replica_scenarios` and prints
what it found.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from sweep.experiment import Recipe
from sweep.training.schedule import check_devices, most_devices
from tests.commands import python
from tests.synthetic import refusal

pytestmark = pytest.mark.tensorflow


def scenario(name: str, devices: int, **recipe: Any) -> dict:
    done = python("-m", "tests.replica_scenarios", name, devices, json.dumps(recipe))
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def four() -> dict:
    return scenario("train", 4, ema=0.9, norm_images=4)


def test_four_replicas_stay_equal_to_the_bit(four):
    assert four["replicas"] == 4 and four["equal"]


def test_pruned_weights_are_exactly_zero_on_every_replica(four):
    assert four["pruned_nonzero"] == 0 and four["survivors_moved"] > 0.99


def test_four_replicas_evaluate_every_image_once(four):
    assert four["evaluated"] == pytest.approx(four["evaluated_by_hand"], abs=1e-6)


def test_the_step_of_four_replicas_is_the_mean_of_four_quarter_batches_each_normalised_by_itself(four):
    """Batch norm per replica, as stated: one device computing the four quarters one by one gives the same step."""
    np.testing.assert_allclose(four["step"], four["step_by_quarters"], rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(four["statistics"], four["statistics_by_quarters"], rtol=1e-4, atol=1e-6)


def test_without_batch_statistics_four_replicas_take_the_step_of_one(four):
    """Gradients of a quarter batch each, summed, are the gradient of the whole batch when norms are frozen."""
    np.testing.assert_allclose(four["frozen"], four["frozen_by_one"], rtol=1e-4, atol=1e-6)


def test_each_image_is_augmented_alike_however_many_replicas_share_the_batch(four):
    assert four["augmented_alike"]


@pytest.mark.drill
def test_xla_inside_each_replica_gives_the_same_training():
    plain, compiled = (scenario("train", 2, xla=xla, norm_images=8) for xla in ("off", "on"))
    assert compiled["equal"] and compiled["pruned_nonzero"] == 0
    np.testing.assert_allclose(plain["step"], compiled["step"], rtol=1e-3, atol=1e-5)


@pytest.mark.drill
def test_shaped_layers_inside_each_replica_give_the_same_loss():
    plain = scenario("depthwise", 2, xla="off", norm_images=8)
    shaped = scenario("depthwise", 2, xla="on", layers="shaped", norm_images=8)
    alone = scenario("depthwise", 1, xla="on", layers="shaped", norm_images=8)
    assert plain["equal"] and shaped["equal"]
    assert shaped["loss"] == pytest.approx(plain["loss"], rel=1e-4)
    assert alone["loss"] == pytest.approx(plain["loss"], rel=1e-4), "the same groups on one device"


@pytest.mark.parametrize(("batch", "norm_images", "replicas"), [(16, 0, 2), (16, 8, 4), (18, 6, 2)])
def test_replicas_that_cannot_share_a_batch_are_refused_in_one_line(batch, norm_images, replicas):
    said = refusal(lambda: check_devices(Recipe(batch=batch, norm_images=norm_images), replicas))
    assert f"batch norm sees {norm_images or batch} images together" in said and f"and not {replicas}" in said


def test_as_many_devices_are_taken_as_can_share_a_batch():
    found = [most_devices(Recipe(batch=128, norm_images=n), 4) for n in (0, 128, 64, 32, 16)]
    assert found == [1, 1, 2, 4, 4]


MIXING = {"mixup": 0.4, "cutmix": 1.0, "label_smoothing": 0.1}


@pytest.fixture(scope="module")
def on_devices() -> dict[int, dict]:
    """The same ticket, 20 steps of it, on 1 and 4 devices; mixing on."""
    return {n: scenario("alike", n, network="one_convolution", norm_images=4, epochs=5, **MIXING) for n in (1, 4)}


def test_the_same_ticket_on_1_and_4_devices_agrees_to_rounding(on_devices, record_property):
    """20 steps with mixing, plain layers in float32. Largest difference of a weight, relative to the largest weight."""
    one, several = (np.array(on_devices[n]["weights"]) for n in (1, 4))
    apart = float(np.abs(one - several).max() / np.abs(one).max())
    record_property("largest difference", apart)
    assert 0 <= apart < 1e-4
    assert on_devices[4]["losses"] == pytest.approx(on_devices[1]["losses"], rel=1e-4)


@pytest.mark.drill
def test_the_same_ticket_with_shaped_layers_agrees_to_rounding():
    """20 steps on 1 and 2 devices, and on plain layers. Of ResNet-8: MobileNetV2 at 8 pixels normalises 8 numbers in
    its last stages, and its weights are a fifth of their norm apart after 20 steps, on plain layers as well."""
    shaped = {n: scenario("alike", n, norm_images=8, epochs=5, xla="on", layers="shaped") for n in (1, 2)}
    plain = scenario("alike", 1, norm_images=8, epochs=5)
    one = np.array(shaped[1]["weights"])
    for other in (shaped[2], plain):
        assert np.abs(one - np.array(other["weights"])).max() / np.abs(one).max() < 1e-3
        assert other["losses"] == pytest.approx(shaped[1]["losses"], rel=1e-3)


@pytest.mark.drill
def test_dense_run_masks_and_tickets_on_four_replicas_end_where_those_on_one_do(tmp_path):
    ends = [scenario("sweep", n, folder=str(tmp_path / str(n))) for n in (1, 4)]
    assert all(end["failures"] == [] and end["states"] == {"done": 5} for end in ends)
    assert ends[0]["top1"] == pytest.approx(ends[1]["top1"], abs=0.03), "of 74 images"
