"""Masks: which weights stay, to the weight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import build
from sweep.errors import Refused
from sweep.pruning import masks
from sweep.pruning.masks import Level
from sweep.pruning.scores import Seen

FIVE = np.array([3.0, -1.0, 2.0, 1.0, -5.0], np.float32)

weights = st.lists(st.integers(-4, 4), min_size=1, max_size=40).map(lambda v: np.array(v, np.float32))  # many ties
quantiles = st.floats(0.0, 1.0, exclude_max=True)


@pytest.fixture(scope="module")
def network():
    return build("resnet20", image_size=8, channels=3, classes=10, width=0.25)


@pytest.fixture(scope="module")
def kernels(network):
    return network.initial(0).kernels


def per_kernel(mask, sizes) -> list[int]:
    return [int(part.sum()) for part in np.split(mask, np.cumsum(sizes)[:-1])]


def by_quantile(array: np.ndarray, quantile: float) -> masks.Pruned:
    return masks.prune(Seen(array, [array.size]), [(array.size, 1)], Level("quantile", quantile))


def kept_by(mask) -> list[int]:
    return np.flatnonzero(mask).tolist()


# ---- quantiles


@pytest.mark.parametrize(
    ("quantile", "kept", "threshold"),
    [
        (0.0, [0, 1, 2, 3, 4], 0.0),
        (0.2, [0, 2, 3, 4], 1.0),  # of -1 and 1 the earlier goes
        (0.4, [0, 2, 4], 1.0),
        (0.6, [0, 4], 2.0),
        (0.8, [4], 3.0),
        (0.99, [], 5.0),
    ],
)
def test_a_quantile_takes_the_smallest_magnitudes(quantile, kept, threshold):
    pruned = by_quantile(FIVE, quantile)
    assert (kept_by(pruned.mask), pruned.threshold) == (kept, threshold)


@pytest.mark.parametrize("level", [Level("quantile", 0.4), Level("threshold", 1.5)])
def test_weights_that_are_no_numbers_are_refused(level):
    broken = np.array([3.0, np.nan, 2.0, np.inf, -5.0], np.float32)
    with pytest.raises(Refused, match="magnitude: 2 scores are no finite numbers"):
        masks.prune(Seen(broken, [5]), [(5, 1)], level)


def test_of_equal_magnitudes_the_earlier_go_first():
    assert kept_by(by_quantile(np.array([2.0, -2.0, 2.0, -2.0, 2.0]), 0.6).mask) == [3, 4]


@given(weights, quantiles)
def test_exactly_the_rounded_share_of_the_weights_goes(values, quantile):
    pruned = by_quantile(values, quantile)
    assert pruned.mask.dtype == bool
    assert int((~pruned.mask).sum()) == round(quantile * len(values))


@given(weights, quantiles)
def test_what_goes_lies_at_or_under_the_threshold_and_what_stays_at_or_above(values, quantile):
    pruned = by_quantile(values, quantile)
    assert np.all(np.abs(values[~pruned.mask]) <= pruned.threshold)
    assert np.all(np.abs(values[pruned.mask]) >= pruned.threshold)


@given(weights, quantiles, quantiles)
def test_the_mask_of_a_higher_quantile_lies_inside_that_of_a_lower(values, one, other):
    low, high = (by_quantile(values, q).mask for q in sorted((one, other)))
    assert np.all(low[high])


@given(weights, quantiles)
def test_signs_do_not_matter(values, quantile):
    np.testing.assert_array_equal(by_quantile(values, quantile).mask, by_quantile(-values, quantile).mask)


# ---- thresholds


@pytest.mark.parametrize(("threshold", "kept"), [(0.0, [0, 1, 2, 3, 4]), (1.0, [0, 2, 4]), (2.5, [0, 4]), (5.0, [])])
def test_a_threshold_takes_every_weight_at_or_under_it(threshold, kept):
    pruned = masks.by_threshold(FIVE, threshold)
    assert (kept_by(pruned.mask), pruned.threshold) == (kept, threshold)


def test_a_threshold_of_zero_takes_weights_that_are_zero_already():
    assert kept_by(masks.by_threshold(np.array([0.0, -0.0, 1e-30]), 0.0).mask) == [2]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=40, unique=True), quantiles)
def test_the_threshold_of_a_quantile_gives_the_same_mask_where_nothing_ties(values, quantile):
    array = np.array(values, np.float32)
    found = by_quantile(array, quantile)
    np.testing.assert_array_equal(masks.by_threshold(array, found.threshold).mask, found.mask)


# ---- of a network


def test_a_mask_covers_the_kernels_and_nothing_else(network, kernels):
    mask = masks.prune(Seen(kernels, [kernels.size]), masks.kernel_shapes(network), Level("quantile", 0.9)).mask
    assert mask.size == network.prunable == sum(masks.kernel_sizes(network))
    assert set(masks.remaining(mask, network)) == {v.name for v in network.of("kernel")}


def test_kept_counts_each_kernel_and_sums_to_the_mask(network, kernels):
    mask = by_quantile(kernels, 0.7).mask
    counts = masks.remaining(mask, network)
    assert list(counts.values()) == per_kernel(mask, masks.kernel_sizes(network))
    assert sum(counts.values()) == network.prunable - round(0.7 * network.prunable)


def test_emptied_names_the_kernels_with_nothing_left(network):
    mask = np.ones(network.prunable, bool)
    assert masks.emptied(mask, network) == []
    parts = network.split("kernel", mask)  # views
    parts["stage2_block1_shortcut/kernel"][:] = False
    parts["classifier/kernel"][:] = False
    parts["stem/kernel"][0] = False
    assert masks.emptied(mask, network) == ["stage2_block1_shortcut/kernel", "classifier/kernel"]


def test_levels_are_written_with_every_digit():
    assert [str(Level("quantile", 0.9)), str(Level("threshold", 0.1 + 0.2))] == ["q0.9", "t0.30000000000000004"]


# ---- controls


def test_a_shuffled_mask_has_the_same_count_in_every_kernel_at_other_positions(network, kernels):
    sizes = masks.kernel_sizes(network)
    mask = by_quantile(kernels, 0.6).mask
    shuffled = masks.shuffled(mask, sizes, masks.stream(0, "shuffled"))
    assert per_kernel(shuffled, sizes) == per_kernel(mask, sizes)
    parts = zip(np.split(mask, np.cumsum(sizes)[:-1]), np.split(shuffled, np.cumsum(sizes)[:-1]), strict=True)
    assert all(np.any(before != after) for before, after in parts if not before.all() and before.any())


def test_a_random_mask_has_the_same_total_but_not_the_same_count_per_kernel(network, kernels):
    sizes = masks.kernel_sizes(network)
    mask = by_quantile(kernels, 0.6).mask
    random = masks.random(mask, masks.stream(0, "random"))
    assert random.sum() == mask.sum()
    assert per_kernel(random, sizes) != per_kernel(mask, sizes)


def test_controls_leave_the_mask_they_come_from_alone():
    mask = np.array([True, True, False, False, False, True])
    before = mask.copy()
    masks.random(mask, masks.stream(0))
    masks.shuffled(mask, [3, 3], masks.stream(0))
    np.testing.assert_array_equal(mask, before)


def drawn(seed: int, *words: object) -> list[float]:
    return masks.stream(seed, *words).random(4).tolist()


def test_a_stream_depends_on_its_seed_and_its_purpose_and_on_nothing_else():
    assert drawn(0, "shuffled", Level("quantile", 0.5)) == drawn(0, "shuffled", Level("quantile", 0.5))
    others = [drawn(1, "shuffled", "q0.5"), drawn(0, "random", "q0.5"), drawn(0, "shuffled", "q0.6")]
    assert drawn(0, "shuffled", "q0.5") not in others
