"""Trainings start from mask × snapshot."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from models import Weights
from sweep import files
from sweep.experiment import point
from sweep.graph.home import Home
from sweep.graph.mask_file import Found, make_mask
from sweep.graph.training import Training
from sweep.pruning import masks
from sweep.pruning.allocations import lowest_out
from sweep.work.inputs import Inputs
from tests import synthetic
from tests.graph.conftest import CONTROLS, FINAL_SEED, QUANTILES, RETRAINED, weights_of
from tests.synthetic import refusal


def inputs_of(home: Home, training: Training, weights: tuple[Weights, ...], mask: Found | None) -> Inputs:
    program = SimpleNamespace(network=synthetic.network(), steps=synthetic.STEPS, fingerprint="")
    return Inputs(training, home.folder(training), program, weights, mask, {}, {})


def started(home: Home, training: Training, mask: Found | None):
    """Where a training begins, from what it reads."""
    weights = tuple(files.read_snapshot(path, synthetic.network()) for path in home.starts(training))
    return inputs_of(home, training, weights, mask).start()


@pytest.fixture
def start_of(home):
    """The start of a training, by kind, quantile and rewind epoch."""
    controls = (*CONTROLS, "same_signs", "same_magnitudes")
    asked = synthetic.experiment(quantiles=QUANTILES, controls=controls, lr_rewind=RETRAINED, seeds=(0, 1))
    both = Home(home.root, asked)

    def start(kind: str, quantile: float = 0.9, epoch: int = 2, seed: int = 0):
        training = both.training(f"{kind}-q{quantile!r}-k{point(f'{epoch}ep')}-seed{seed}")
        mask = make_mask(both, training.mask) if seed == 0 else None
        return started(both, training, mask)

    return start


def assert_same(weights: Weights, expected: Weights) -> None:
    assert [part.tobytes() for part in weights] == [part.tobytes() for part in expected]


def final_mask(quantile: float = 0.9) -> np.ndarray:
    return lowest_out(np.abs(weights_of(FINAL_SEED).kernels), quantile)


@pytest.mark.tensorflow
@pytest.mark.parametrize("epoch", [0, 2])
def test_a_ticket_has_the_weights_of_its_rewind_epoch_and_the_mask_of_the_final_ones(start_of, epoch):
    start = start_of("ticket", epoch=epoch)
    assert_same(start.weights, weights_of(epoch))
    np.testing.assert_array_equal(start.mask, final_mask())


@pytest.mark.tensorflow
def test_the_mask_of_one_level_is_the_same_for_every_rewind_epoch(start_of):
    np.testing.assert_array_equal(start_of("ticket", epoch=0).mask, start_of("ticket", epoch=2).mask)
    assert start_of("ticket", 0.5).mask.sum() > start_of("ticket", 0.9).mask.sum()


@pytest.mark.tensorflow
def test_a_fresh_initialization_has_other_values_under_the_same_mask(start_of):
    start = start_of("fresh", epoch=0)
    np.testing.assert_array_equal(start.mask, final_mask())
    for seed in (0, 2, FINAL_SEED):
        assert np.mean(start.weights.kernels == weights_of(seed).kernels) < 0.001
    assert_same(start.weights, start_of("fresh", 0.5, epoch=0).weights)  # the same fresh start at every level
    assert np.mean(start.weights.kernels == start_of("fresh", epoch=0, seed=1).weights.kernels) < 0.001
    initial = synthetic.network().initial(0)
    assert start.weights.kernels.std() == pytest.approx(initial.kernels.std(), rel=0.05)
    assert_same(start.weights._replace(kernels=initial.kernels), initial)


@pytest.mark.tensorflow
def test_a_shuffled_mask_has_other_positions_and_the_same_count_in_every_kernel(start_of):
    start, network = start_of("shuffled"), synthetic.network()
    assert_same(start.weights, weights_of(2))
    assert masks.remaining(start.mask, network) == masks.remaining(final_mask(), network)
    kept_by_both = (start.mask & final_mask()).sum() / final_mask().sum()
    assert kept_by_both < 0.5
    np.testing.assert_array_equal(start.mask, start_of("shuffled").mask)


@pytest.mark.tensorflow
def test_a_random_mask_has_other_positions_and_the_same_count_over_all(start_of):
    start, network = start_of("random"), synthetic.network()
    assert_same(start.weights, weights_of(2))
    assert start.mask.sum() == final_mask().sum()
    assert masks.remaining(start.mask, network) != masks.remaining(final_mask(), network)
    assert (start.mask & final_mask()).sum() / final_mask().sum() < 0.2
    np.testing.assert_array_equal(start.mask, start_of("random").mask)


@pytest.mark.tensorflow
def test_learning_rate_rewinding_starts_from_the_final_weights(start_of):
    start = start_of("lr_rewind")
    assert_same(start.weights, weights_of(FINAL_SEED))
    np.testing.assert_array_equal(start.mask, final_mask())


@pytest.mark.tensorflow
def test_of_signs_and_magnitudes_one_is_kept_and_the_other_is_fresh(start_of):
    ticket, fresh = start_of("ticket").weights, start_of("fresh", epoch=0).weights
    signs, sizes = start_of("same_signs").weights, start_of("same_magnitudes").weights
    np.testing.assert_array_equal(np.signbit(signs.kernels), np.signbit(ticket.kernels))
    np.testing.assert_array_equal(np.abs(signs.kernels), np.abs(fresh.kernels))
    np.testing.assert_array_equal(np.abs(sizes.kernels), np.abs(ticket.kernels))
    np.testing.assert_array_equal(np.signbit(sizes.kernels), np.signbit(fresh.kernels))
    for weights in (signs, sizes):
        assert_same(weights._replace(kernels=ticket.kernels), ticket)


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", ["ticket", *CONTROLS, "lr_rewind", "same_signs"])
def test_every_kind_takes_up_the_schedule_at_its_epoch_with_its_seed(start_of, kind):
    for epoch in (0,) if kind == "fresh" else (0, 2):
        start = start_of(kind, epoch=epoch)
        assert (start.step, start.seed) == (synthetic.STEPS * epoch, 0)


@pytest.mark.tensorflow
def test_every_training_of_the_plan_starts_from_something_of_its_own(home):
    plan = [one for one in home.graph if one.mask and str(one.mask.level) in ("q0.9", "t0.1")]
    starts = {one.slug: started(home, one, make_mask(home, one.mask)).digest for one in plan}
    assert len(set(starts.values())) == len(plan) == 2 * (2 + 1 + 3 * 2)


def test_a_training_without_its_snapshot_is_refused(own):
    own.snapshot(own.training("dense-seed0"), point("2ep")).unlink()
    said = refusal(lambda: own.starts(own.training("ticket-q0.9-k2ep-seed0")))
    assert said == "dense-seed0: its weights at 2ep are not there; lottery sweep trains it again up to there"


@pytest.mark.tensorflow
def test_a_point_after_the_end_is_refused(home):
    late = Home(home.root, synthetic.experiment(rewind=(point("400it"),))).training("ticket-q0.5-k400it-seed0")
    inputs = inputs_of(home, late, (weights_of(2),), None)
    assert "400it lies after the end (400 steps)" in refusal(inputs.start)
