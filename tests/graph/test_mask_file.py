"""Masks come from the final weights of the dense run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from models import build
from sweep import files
from sweep.experiment import Data, method, point
from sweep.graph.home import Home
from sweep.graph.mask_file import make_mask, read_mask, read_own_mask
from sweep.graph.training import Mask
from sweep.pruning import masks
from sweep.pruning.allocations import lowest_out
from sweep.report.kept import kept
from tests import synthetic
from tests.graph.conftest import FINAL_SEED, QUANTILES, weights_of
from tests.synthetic import refusal


def mask_of(home: Home, level: str = "q0.9", seed: int = 0) -> Mask:
    (found,) = {
        one.mask.as_made for one in home.graph if one.mask and str(one.mask.level) == level and one.seed == seed
    }
    return found


def found_of(home: Home, level: str = "q0.9", seed: int = 0):
    return make_mask(home, mask_of(home, level, seed))


def final(home: Home) -> Path:
    return synthetic.dense(home) / "snapshots" / "final.h5"


def final_magnitudes() -> np.ndarray:
    return np.abs(weights_of(FINAL_SEED).kernels)


@pytest.mark.parametrize("quantile", QUANTILES)
def test_the_count_of_a_quantile_is_exact(home, quantile):
    mask = found_of(home, f"q{quantile!r}").mask
    assert (mask.dtype, mask.shape) == (bool, (synthetic.network().prunable,))
    assert int((~mask).sum()) == round(quantile * mask.size)


def test_pruned_weights_are_smaller_than_kept_ones_in_the_final_weights(home):
    magnitude = final_magnitudes()
    for quantile in QUANTILES[1:]:
        found = found_of(home, f"q{quantile!r}")
        assert magnitude[~found.mask].max() == found.threshold <= magnitude[found.mask].min()


def test_an_absolute_threshold_is_kept_as_it_was_given(home):
    found = found_of(home, "t0.1")
    assert found.threshold == 0.1
    np.testing.assert_array_equal(found.mask, final_magnitudes() > 0.1)


def test_the_density_is_the_share_of_kept_weights(home):
    count = synthetic.network().prunable
    assert found_of(home, "q0.9").density == (count - round(0.9 * count)) / count
    assert found_of(home, "t0.1").density == np.mean(final_magnitudes() > 0.1)
    assert found_of(home, "q0.0").density == 1.0


def test_the_masks_are_nested(home):
    for lower, higher in pairwise(QUANTILES):
        low, high = found_of(home, f"q{lower!r}").mask, found_of(home, f"q{higher!r}").mask
        assert high.sum() < low.sum() and np.all(low[high])


def test_the_masks_are_those_of_the_final_snapshot_and_of_no_other(home):
    mask = found_of(home).mask
    of_snapshot = {seed: lowest_out(np.abs(weights_of(seed).kernels), 0.9).tobytes() for seed in (0, 2, FINAL_SEED)}
    assert [seed for seed, expected in of_snapshot.items() if expected == mask.tobytes()] == [FINAL_SEED]


def test_the_rewind_snapshots_are_not_looked_at(own):
    dense = own.training("dense-seed0")
    own.snapshot(dense, point(0)).unlink()
    own.snapshot(dense, point("2ep")).write_text("damaged")
    assert found_of(own).mask.any()


def test_every_seed_has_masks_of_its_own_final_weights(tmp_path):
    home = Home(tmp_path / "small", synthetic.experiment(seeds=(0, 1)))
    for seed in (0, 1):
        synthetic.write_snapshot(home, weights_of(seed), None, seed)
    for seed in (0, 1):
        expected = lowest_out(np.abs(weights_of(seed).kernels), 0.9)
        np.testing.assert_array_equal(found_of(home, seed=seed).mask, expected)


def test_layerwise_masks_take_the_share_of_every_kernel(tmp_path):
    home = Home(tmp_path / "small", synthetic.experiment(methods=(method("magnitude/uniform"),)))
    synthetic.write_snapshot(home, weights_of(FINAL_SEED), None)
    found = found_of(home)
    left = masks.remaining(found.mask, found.network)
    assert left == {v.name: v.size - round(0.9 * v.size) for v in found.network.of("kernel")}
    assert found.threshold is None


# ---- on disk


def test_a_mask_is_the_same_after_reading_it_again(own):
    made, again = found_of(own), read_mask(own, mask_of(own))
    assert again.threshold == made.threshold
    np.testing.assert_array_equal(again.mask, made.mask)
    assert again.network.variables == synthetic.network().variables


def test_a_mask_is_written_once(own):
    found_of(own)
    before = own.mask(mask_of(own)).stat()
    found_of(own)
    after = own.mask(mask_of(own)).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_file_counts_the_kept_weights_of_every_kernel(own):
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
    synthetic.write_snapshot(own, weights._replace(kernels=np.nextafter(weights.kernels, np.float32(1))), None)
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
    synthetic.finish(own, "dense-seed0", 0.9, run="0" * 64)
    assert "taken from other weights than" in refusal(lambda: kept(own))


@pytest.mark.parametrize("missing", ["image_size", "Conv1/kernel"])
def test_another_file_in_place_of_the_final_snapshot_is_refused_by_name(own, missing):
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


def test_laid_on_a_network_with_other_classes_a_mask_leaves_the_classifier_whole(home):
    found = found_of(home)
    other = build("mobilenet_v2_small", image_size=8, channels=1, classes=7, width=0.35)
    laid = other.split("kernel", found.on(other).mask)
    for name, part in found.network.split("kernel", found.mask).items():
        np.testing.assert_array_equal(
            laid[name], part if name != "predictions/kernel" else np.ones((part.shape[0], 7), bool)
        )
    np.testing.assert_array_equal(found.on(found.network).mask, found.mask)


@pytest.mark.tensorflow
def test_a_mask_found_at_initialization_is_one_of_the_network_it_is_found_in(tmp_path):
    """Also where the training that wants it has another number of classes: its classifier is not pruned."""
    from sweep.work.inputs import mask_of as mask_for
    from sweep.work.worker import Worker

    data = Data("synthetic", image_size=8, classes=6, images=64)
    asked = synthetic.experiment(data=data, methods=(method("random"),), quantiles=(0.5,), rewind=synthetic.points(0))
    home = Home(tmp_path / "small", asked)
    ticket = home.training(synthetic.tickets(home)[0])
    found = mask_for(home, replace(ticket, data=replace(data, classes=4)), Worker(home, quiet=True))
    assert (found.network.classes, read_own_mask(home, ticket.mask).network.classes) == (4, 6)
    assert found.network.split("kernel", found.mask)["predictions/kernel"].all()


def test_a_finished_training_is_trained_again_though_its_mask_empties_a_layer(own):
    """Another experiment asked for it with prune.collapse train; this one only needs weights of it that are lost."""
    from sweep.work.inputs import Skipped
    from sweep.work.inputs import mask_of as mask_for

    home = Home(own.root, synthetic.experiment(quantiles=(0.999,)))
    ticket = home.training("ticket-q0.999-k0-seed0")
    with pytest.raises(Skipped, match="fully pruned"):
        mask_for(home, ticket, None)
    synthetic.finish(home, ticket.slug, 0.5)
    assert mask_for(home, ticket, None).density < 0.002
