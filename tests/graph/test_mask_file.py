"""Masks come from the final weights of the dense run, and cells start from mask × snapshot."""

from __future__ import annotations

import shutil
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from models import Weights
from sweep import files
from sweep.experiment import method, point
from sweep.graph.home import Home
from sweep.graph.mask_file import make_mask, read_mask
from sweep.graph.training import Mask
from sweep.pruning import masks
from sweep.report.kept import kept
from tests import made_up
from tests.made_up import refusal

QUANTILES = (0.0, 0.5, 0.9, 0.99)
CONTROLS = ("fresh", "shuffled", "random")
RETRAINED = made_up.points(0, 2)
FINAL_SEED = 9  # stands for the end of the training; epoch k has the values of seed k


@cache
def weights_of(seed: int) -> Weights:
    """Weights in which every number, statistics too, is another one for every seed."""
    kernels, others, statistics = made_up.network().initial(seed)
    return Weights(kernels, others + np.float32(seed), statistics + np.float32(seed / 8))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A finished dense run, to be read only."""
    asked = made_up.experiment(quantiles=QUANTILES, thresholds=(0.1,), controls=CONTROLS, lr_rewind=RETRAINED)
    home = Home(tmp_path_factory.mktemp("results") / "small", asked)
    made_up.finish(home, "dense-seed0", 0.9)
    for epoch in (0, 2):
        made_up.write_snapshot(home, weights_of(epoch), epoch)
    made_up.write_snapshot(home, weights_of(FINAL_SEED), None)
    return home


@pytest.fixture
def own(home, tmp_path):
    """A finished dense run of one's own, to be changed."""
    shutil.copytree(home.pool, tmp_path / "own")
    return Home(tmp_path / "own" / "small", home.experiment)


def mask_of(home: Home, level: str = "q0.9", seed: int = 0) -> Mask:
    (found,) = {
        one.mask.as_made for one in home.graph if one.mask and str(one.mask.level) == level and one.seed == seed
    }
    return found


def found_of(home: Home, level: str = "q0.9", seed: int = 0):
    return make_mask(home, mask_of(home, level, seed))


def final(home: Home) -> Path:
    return made_up.dense(home) / "snapshots" / "final.h5"


def final_magnitudes() -> np.ndarray:
    return np.abs(weights_of(FINAL_SEED).kernels)


# ---- the masks


@pytest.mark.parametrize("quantile", QUANTILES)
def test_the_count_of_a_quantile_is_exact(home, quantile):
    mask = found_of(home, f"q{quantile!r}").mask
    assert (mask.dtype, mask.shape) == (bool, (made_up.network().prunable,))
    assert int((~mask).sum()) == round(quantile * mask.size)


def test_what_goes_is_smaller_than_what_stays_in_the_final_weights(home):
    magnitude = final_magnitudes()
    for quantile in QUANTILES[1:]:
        found = found_of(home, f"q{quantile!r}")
        assert magnitude[~found.mask].max() == found.threshold <= magnitude[found.mask].min()


def test_an_absolute_threshold_is_kept_as_it_was_given(home):
    found = found_of(home, "t0.1")
    assert found.threshold == 0.1
    np.testing.assert_array_equal(found.mask, final_magnitudes() > 0.1)


def test_the_density_is_the_share_that_stays(home):
    count = made_up.network().prunable
    assert found_of(home, "q0.9").density == (count - round(0.9 * count)) / count
    assert found_of(home, "t0.1").density == np.mean(final_magnitudes() > 0.1)
    assert found_of(home, "q0.0").density == 1.0


def test_the_masks_are_nested(home):
    for lower, higher in pairwise(QUANTILES):
        low, high = found_of(home, f"q{lower!r}").mask, found_of(home, f"q{higher!r}").mask
        assert high.sum() < low.sum() and np.all(low[high])


def test_the_masks_are_those_of_the_final_snapshot_and_of_no_other(home):
    mask = found_of(home).mask
    of_snapshot = {seed: masks.by_quantile(weights_of(seed).kernels, 0.9).mask.tobytes() for seed in (0, 2, FINAL_SEED)}
    assert [seed for seed, expected in of_snapshot.items() if expected == mask.tobytes()] == [FINAL_SEED]


def test_the_rewind_snapshots_are_not_looked_at(own):
    dense = own.training("dense-seed0")
    own.snapshot(dense, point(0)).unlink()
    own.snapshot(dense, point("2ep")).write_text("damaged")
    assert found_of(own).mask.any()


def test_every_seed_has_masks_of_its_own_final_weights(tmp_path):
    home = Home(tmp_path / "small", made_up.experiment(seeds=(0, 1)))
    for seed in (0, 1):
        made_up.write_snapshot(home, weights_of(seed), None, seed)
    for seed in (0, 1):
        expected = masks.by_quantile(weights_of(seed).kernels, 0.9).mask
        np.testing.assert_array_equal(found_of(home, seed=seed).mask, expected)


def test_layerwise_masks_take_the_share_of_every_kernel(tmp_path):
    home = Home(tmp_path / "small", made_up.experiment(methods=(method("magnitude/uniform"),)))
    made_up.write_snapshot(home, weights_of(FINAL_SEED), None)
    found = found_of(home)
    left = masks.remaining(found.mask, found.network)
    assert left == {v.name: v.size - round(0.9 * v.size) for v in found.network.of("kernel")}
    assert found.threshold is None


# ---- on disk


def test_a_mask_is_the_same_after_reading_it_again(own):
    made, again = found_of(own), read_mask(own, mask_of(own))
    assert again.threshold == made.threshold
    np.testing.assert_array_equal(again.mask, made.mask)
    assert again.network.variables == made_up.network().variables


def test_a_mask_is_written_once(own):
    found_of(own)
    before = own.mask(mask_of(own)).stat()
    found_of(own)
    after = own.mask(mask_of(own)).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_file_counts_what_stays_in_every_kernel(own):
    found = found_of(own)
    arrays, attributes = files.read_arrays(own.mask(mask_of(own)))
    assert arrays["remaining"].tolist() == list(masks.remaining(found.mask, found.network).values())
    assert attributes["prunable"] == found.network.prunable


@pytest.mark.parametrize("moved", [False, True], ids=["one fewer", "one in another kernel"])
def test_a_mask_that_keeps_another_number_of_weights_is_refused(own, moved):
    """Sound as a file, its checksum right: written by something that counts otherwise."""
    found, path = found_of(own), own.mask(mask_of(own))
    arrays, attributes = files.read_arrays(path)
    other = found.mask.copy()
    other[np.flatnonzero(other)[0]] = False
    if moved:
        other[np.flatnonzero(~other)[-1]] = True
    files.write_arrays(path, arrays | {"mask": np.packbits(other)}, attributes)
    expected = "other counts of its kernels" if moved else f"{other.sum()} of {other.size} weights kept, expected "
    assert f"{path}: {expected}" in refusal(lambda: read_mask(own, mask_of(own)))


def test_a_mask_of_other_weights_is_refused(own):
    found_of(own)
    weights = weights_of(FINAL_SEED)
    made_up.write_snapshot(own, weights._replace(kernels=np.nextafter(weights.kernels, np.float32(1))), None)
    assert refusal(lambda: found_of(own)) == (
        f"{own.mask(mask_of(own))}: taken from other weights than {final(own)}; delete it"
    )


def test_a_file_of_something_else_in_its_place_is_refused_by_name(own):
    found_of(own)
    path = own.mask(mask_of(own))
    shutil.copy(final(own), path)
    assert refusal(lambda: read_mask(own, mask_of(own))).startswith(f"{path}: not a mask (")


def test_a_mask_of_another_run_is_refused_where_the_weights_are_gone(own):
    found_of(own)
    final(own).unlink()
    made_up.finish(own, "dense-seed0", 0.9, run="0" * 64)
    assert "taken from other weights than" in refusal(lambda: kept(own))


@pytest.mark.parametrize("missing", ["image_size", "Conv1/kernel"])
def test_a_final_snapshot_that_is_none_is_refused_by_name(own, missing):
    arrays, attributes = files.read_arrays(final(own))
    parts = ({k: v for k, v in part.items() if k != missing} for part in (arrays, attributes))
    files.write_arrays(final(own), *parts)
    assert refusal(lambda: found_of(own)).startswith(f"{final(own)}: not a snapshot (")


def test_a_mask_that_is_there_needs_no_snapshot(own):
    """A pool may travel without its large files."""
    made = found_of(own)
    final(own).unlink()
    np.testing.assert_array_equal(found_of(own).mask, made.mask)


def test_without_a_final_snapshot_there_is_no_mask(own):
    final(own).unlink()
    own.mask(mask_of(own)).unlink(missing_ok=True)
    assert refusal(lambda: found_of(own)).startswith(f"{final(own)}: no such file")
    assert not own.mask(mask_of(own)).exists()


# ---- where cells start


@pytest.fixture
def start_of(home):
    """The start of a training, by kind, quantile and rewind epoch."""
    from sweep.work.start import start_of  # loads TensorFlow

    controls = (*CONTROLS, "same_signs", "same_magnitudes")
    asked = made_up.experiment(quantiles=QUANTILES, controls=controls, lr_rewind=RETRAINED, seeds=(0, 1))
    both = Home(home.root, asked)

    def start(kind: str, quantile: float = 0.9, epoch: int = 2, seed: int = 0):
        training = both.training(f"{kind}-q{quantile!r}-k{point(f'{epoch}ep')}-seed{seed}")
        mask = make_mask(both, training.mask) if seed == 0 else None
        return start_of(both, training, made_up.network(), made_up.STEPS, mask)

    return start


def assert_same(weights: Weights, expected: Weights) -> None:
    assert [part.tobytes() for part in weights] == [part.tobytes() for part in expected]


def final_mask(quantile: float = 0.9) -> np.ndarray:
    return masks.by_quantile(weights_of(FINAL_SEED).kernels, quantile).mask


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
    initial = made_up.network().initial(0)
    assert start.weights.kernels.std() == pytest.approx(initial.kernels.std(), rel=0.05)
    assert_same(start.weights._replace(kernels=initial.kernels), initial)


@pytest.mark.tensorflow
def test_a_shuffled_mask_has_other_positions_and_the_same_count_in_every_kernel(start_of):
    start, network = start_of("shuffled"), made_up.network()
    assert_same(start.weights, weights_of(2))
    assert masks.remaining(start.mask, network) == masks.remaining(final_mask(), network)
    kept_by_both = (start.mask & final_mask()).sum() / final_mask().sum()
    assert kept_by_both < 0.5
    np.testing.assert_array_equal(start.mask, start_of("shuffled").mask)


@pytest.mark.tensorflow
def test_a_random_mask_has_other_positions_and_the_same_count_over_all(start_of):
    start, network = start_of("random"), made_up.network()
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
        assert (start.step, start.seed) == (made_up.STEPS * epoch, 0)


@pytest.mark.tensorflow
def test_every_training_of_the_plan_starts_from_something_of_its_own(home):
    from sweep.training.loop import fingerprint
    from sweep.work.start import start_of

    plan = [one for one in home.graph if one.mask and str(one.mask.level) in ("q0.9", "t0.1")]
    starts = {
        one.slug: fingerprint(start_of(home, one, made_up.network(), made_up.STEPS, make_mask(home, one.mask)))
        for one in plan
    }
    assert len(set(starts.values())) == len(plan) == 2 * (2 + 1 + 3 * 2)


@pytest.mark.tensorflow
def test_a_training_without_its_snapshot_is_refused(own):
    from sweep.work.start import start_of

    ticket = own.training("ticket-q0.9-k2ep-seed0")
    path = own.snapshot(own.training("dense-seed0"), point("2ep"))
    path.unlink()
    said = refusal(lambda: start_of(own, ticket, made_up.network(), made_up.STEPS, None))
    assert said.startswith(f"{path}: no such file")


@pytest.mark.tensorflow
def test_a_point_after_the_end_is_refused(home):
    from sweep.work.start import start_of

    late = Home(home.root, made_up.experiment(rewind=(point("400it"),))).training("ticket-q0.5-k400it-seed0")
    assert "400it lies after the end (400 steps)" in refusal(
        lambda: start_of(home, late, made_up.network(), made_up.STEPS, None)
    )
