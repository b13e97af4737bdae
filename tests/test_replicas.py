"""Several replicas: four logical CPU devices under MirroredStrategy, in a process of their own.

TensorFlow's devices are set up once per process, so each scenario runs `python -m tests.replica_scenarios` and prints
what it found.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow


def scenario(name: str, devices: int, **recipe) -> dict:
    command = [sys.executable, "-m", "tests.replica_scenarios", name, str(devices), json.dumps(recipe)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def four() -> dict:
    return scenario("train", 4, ema=0.9)


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


def test_xla_inside_each_replica_gives_the_same_training():
    plain, compiled = (scenario("train", 2, xla=xla) for xla in ("off", "on"))
    assert compiled["equal"] and compiled["pruned_nonzero"] == 0
    np.testing.assert_allclose(plain["step"], compiled["step"], rtol=1e-3, atol=1e-5)


@pytest.mark.drill
def test_shaped_layers_inside_each_replica_give_the_same_loss():
    plain = scenario("depthwise", 2, xla="off")
    shaped = scenario("depthwise", 2, xla="on", layers="shaped")
    assert plain["equal"] and shaped["equal"]
    assert shaped["loss"] == pytest.approx(plain["loss"], rel=1e-4)


def test_a_batch_that_does_not_divide_by_the_replicas_is_refused():
    assert "expected a multiple of 4 devices" in scenario("refuse", 4, batch=18)["said"]


@pytest.mark.slow
def test_dense_run_masks_and_tickets_run_on_four_replicas(tmp_path):
    found = scenario("sweep", 4, folder=str(tmp_path))
    assert found["failures"] == [] and found["states"] == {"done": 5}
