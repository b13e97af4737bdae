"""Masks come from the final weights of the dense run, and cells start from mask × snapshot."""

from __future__ import annotations

import shutil
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from models import Weights
from sweep import masks
from sweep.mask_file import make_masks, read_masks
from sweep.masks import Level
from sweep.plan import Cell, cells
from sweep.store import Store
from tests import made_up
from tests.made_up import refusal

QUANTILES = (0.0, 0.5, 0.9, 0.99)
CONTROLS = ("fresh", "shuffled", "random", "finetune")
FINAL_SEED = 9  # stands for the end of the training; epoch k has the values of seed k


@cache
def weights_of(seed: int) -> Weights:
    """Weights in which every number, statistics too, is another one for every seed."""
    kernels, others, statistics = made_up.network().initial(seed)
    return Weights(kernels, others + np.float32(seed), statistics + np.float32(seed / 8))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A finished dense run, to be read only."""
    home = Store(
        tmp_path_factory.mktemp("home"), made_up.experiment(quantiles=QUANTILES, thresholds=(0.1,), controls=CONTROLS)
    )
    for epoch in (0, 2):
        made_up.write_snapshot(home, weights_of(epoch), epoch)
    made_up.write_snapshot(home, weights_of(FINAL_SEED), None)
    make_masks(home, 0)
    return home


@pytest.fixture
def own(home, tmp_path):
    """A finished dense run of one's own, to be changed."""
    return Store(shutil.copytree(home.root, tmp_path / "own"), home.experiment)


def final_magnitudes() -> np.ndarray:
    return np.abs(weights_of(FINAL_SEED).kernels)


# ---- the masks


@pytest.mark.parametrize("quantile", QUANTILES)
def test_the_count_of_a_quantile_is_exact(home, quantile):
    mask = make_masks(home, 0).masks[f"q{quantile!r}"]
    assert (mask.dtype, mask.shape) == (bool, (made_up.network().prunable,))
    assert int((~mask).sum()) == round(quantile * mask.size)


def test_what_goes_is_smaller_than_what_stays_in_the_final_weights(home):
    found, magnitude = make_masks(home, 0), final_magnitudes()
    for quantile in QUANTILES[1:]:
        mask = found.masks[f"q{quantile!r}"]
        assert magnitude[~mask].max() == found.thresholds[f"q{quantile!r}"] <= magnitude[mask].min()


def test_an_absolute_threshold_is_kept_as_it_was_given(home):
    found = make_masks(home, 0)
    assert found.thresholds["t0.1"] == 0.1
    np.testing.assert_array_equal(found.masks["t0.1"], final_magnitudes() > 0.1)


def test_the_density_is_the_share_that_stays(home):
    found = make_masks(home, 0)
    count = made_up.network().prunable
    assert found.density(Level("quantile", 0.9)) == (count - round(0.9 * count)) / count
    assert found.density(Level("threshold", 0.1)) == np.mean(final_magnitudes() > 0.1)
    assert found.density(Level("quantile", 0.0)) == 1.0


def test_the_masks_are_nested(home):
    found = make_masks(home, 0)
    for lower, higher in pairwise(QUANTILES):
        low, high = found.masks[f"q{lower!r}"], found.masks[f"q{higher!r}"]
        assert high.sum() < low.sum() and np.all(low[high])


def test_the_masks_are_those_of_the_final_snapshot_and_of_no_other(home):
    mask = make_masks(home, 0).masks["q0.9"]
    of_snapshot = {seed: masks.by_quantile(weights_of(seed).kernels, 0.9).mask.tobytes() for seed in (0, 2, FINAL_SEED)}
    assert [seed for seed, expected in of_snapshot.items() if expected == mask.tobytes()] == [FINAL_SEED]


def test_the_rewind_snapshots_are_not_looked_at(own):
    own.masks(0).unlink()
    own.snapshot(0, 0).unlink()
    own.snapshot(0, 2).write_text("damaged")
    assert set(make_masks(own, 0).masks) == {"q0.0", "q0.5", "q0.9", "q0.99", "t0.1"}


def test_every_seed_has_masks_of_its_own_final_weights(tmp_path):
    home = Store(tmp_path, made_up.experiment(seeds=(0, 1)))
    for seed in (0, 1):
        made_up.write_snapshot(home, weights_of(seed), None, seed)
    for seed in (0, 1):
        expected = masks.by_quantile(weights_of(seed).kernels, 0.9).mask
        np.testing.assert_array_equal(make_masks(home, seed).masks["q0.9"], expected)


def test_layerwise_masks_take_the_share_of_every_kernel(tmp_path):
    home = Store(tmp_path, made_up.experiment(scope="layerwise"))
    made_up.write_snapshot(home, weights_of(FINAL_SEED), None)
    found = make_masks(home, 0)
    kept = masks.kept(found.masks["q0.9"], found.network)
    assert kept == {v.name: v.size - round(0.9 * v.size) for v in found.network.of("kernel")}
    assert found.thresholds["q0.9"] is None


# ---- on disk


def test_masks_and_thresholds_are_the_same_after_reading_them_again(own):
    own.masks(0).unlink()
    made, again = make_masks(own, 0), read_masks(own, 0)
    assert again.thresholds == made.thresholds
    assert set(again.masks) == set(made.masks)
    for level, mask in made.masks.items():
        np.testing.assert_array_equal(again.masks[level], mask)
    assert again.network.variables == made_up.network().variables


def test_masks_are_written_once(home):
    before = home.masks(0).stat()
    make_masks(home, 0)
    after = home.masks(0).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_file_counts_what_stays_in_every_kernel(home):
    from sweep.store import read_arrays

    found = make_masks(home, 0)
    arrays, attributes = read_arrays(home.masks(0))
    assert arrays["q0.9/kept"].tolist() == list(masks.kept(found.masks["q0.9"], found.network).values())
    assert attributes["prunable"] == found.network.prunable


def test_masks_of_other_final_weights_are_refused(own):
    weights = weights_of(FINAL_SEED)
    made_up.write_snapshot(own, weights._replace(kernels=np.nextafter(weights.kernels, np.float32(1))), None)
    said = refusal(lambda: make_masks(own, 0))
    assert said == f"{own.masks(0)}: taken from other final weights than {own.snapshot(0, None)}; delete it"


@pytest.mark.tensorflow
def test_a_cell_does_not_train_with_masks_of_other_final_weights(own):
    from sweep.ticket import run_cell

    made_up.write_snapshot(own, weights_of(2), None)
    ticket = Cell("ticket", Level("quantile", 0.9), 2, 0)
    assert "taken from other final weights" in refusal(lambda: run_cell(own, None, ticket, True, None))


@pytest.mark.parametrize("missing", ["image_size", "Conv1/kernel"])
def test_a_final_snapshot_that_is_none_is_refused_by_name(own, missing):
    from sweep.store import read_arrays, write_arrays

    arrays, attributes = read_arrays(own.snapshot(0, None))
    parts = ({k: v for k, v in part.items() if k != missing} for part in (arrays, attributes))
    write_arrays(own.snapshot(0, None), *parts)
    assert refusal(lambda: make_masks(own, 0)).startswith(f"{own.snapshot(0, None)}: not a snapshot (")


def test_masks_of_other_levels_are_refused(home):
    more = Store(home.root, made_up.experiment(quantiles=(*QUANTILES, 0.7)))
    assert refusal(lambda: read_masks(more, 0)) == f"{home.masks(0)}: has no level q0.7; delete it and run again"


def test_without_a_final_snapshot_there_are_no_masks(own):
    own.masks(0).unlink()
    own.snapshot(0, None).unlink()
    assert refusal(lambda: make_masks(own, 0)).startswith(f"{own.snapshot(0, None)}: no such file")
    assert not own.masks(0).exists()


# ---- where cells start


@pytest.fixture
def start_of(home):
    """The start of a cell, by kind, quantile and rewind epoch."""
    from sweep.ticket import start_of  # loads TensorFlow

    mask_file = read_masks(home, 0)

    def start(kind: str, quantile: float = 0.9, epoch: int = 2, seed: int = 0):
        return start_of(home, Cell(kind, Level("quantile", quantile), epoch, seed), mask_file)

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
    assert masks.kept(start.mask, network) == masks.kept(final_mask(), network)
    kept_by_both = (start.mask & final_mask()).sum() / final_mask().sum()
    assert kept_by_both < 0.5
    np.testing.assert_array_equal(start.mask, start_of("shuffled").mask)


@pytest.mark.tensorflow
def test_a_random_mask_has_other_positions_and_the_same_count_over_all(start_of):
    start, network = start_of("random"), made_up.network()
    assert_same(start.weights, weights_of(2))
    assert start.mask.sum() == final_mask().sum()
    assert masks.kept(start.mask, network) != masks.kept(final_mask(), network)
    assert (start.mask & final_mask()).sum() / final_mask().sum() < 0.2
    np.testing.assert_array_equal(start.mask, start_of("random").mask)


@pytest.mark.tensorflow
def test_fine_tuning_starts_from_the_final_weights(start_of):
    start = start_of("finetune")
    assert_same(start.weights, weights_of(FINAL_SEED))
    np.testing.assert_array_equal(start.mask, final_mask())


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", ["ticket", *CONTROLS])
def test_every_kind_takes_up_the_schedule_at_its_epoch_with_its_seed(start_of, kind):
    for epoch in (0, 2):
        start = start_of(kind, epoch=epoch)
        assert (start.epoch, start.seed) == (epoch, 0)


@pytest.mark.tensorflow
def test_every_cell_of_the_plan_starts_from_something_of_its_own(home):
    from sweep.ticket import start_of
    from sweep.training import fingerprint

    mask_file = read_masks(home, 0)
    plan = [cell for cell in cells(home.experiment) if str(cell.level) in ("q0.9", "t0.1")]
    starts = {cell.slug: fingerprint(start_of(home, cell, mask_file)) for cell in plan}
    assert len(set(starts.values())) == len(plan) == 2 * (2 + 1 + 3 * 2)


@pytest.mark.tensorflow
def test_a_cell_without_its_snapshot_is_refused(own):
    from sweep.ticket import start_of

    own.snapshot(0, 2).unlink()
    ticket = Cell("ticket", Level("quantile", 0.9), 2, 0)
    assert refusal(lambda: start_of(own, ticket, read_masks(own, 0))).startswith(f"{own.snapshot(0, 2)}: no such file")
