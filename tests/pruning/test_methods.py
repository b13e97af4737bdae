"""Scores and allocations: by hand on five numbers, in general by hypothesis, and on a real network."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import build
from sweep.experiment import method
from sweep.pruning import masks
from sweep.pruning.allocations import ALLOCATIONS, allocation, divides
from sweep.pruning.compare import overlap
from sweep.pruning.masks import Level
from sweep.pruning.scores import SCORES, Seen, grasp, lamp, magnitude, random, snip, synflow

FIVE = np.array([3.0, -1.0, 2.0, 1.0, -5.0])


class ByHand:
    """Gradients one can compute: of the loss Σ c θ² / 2, and of a flow that is a path through both kernels."""

    curvature = np.array([1.0, 2.0, 3.0, 4.0, 5.0])

    def of_loss(self, kernels):
        return self.curvature * kernels

    def hessian_product(self, kernels):  # H is diagonal
        return self.curvature * self.of_loss(kernels)

    def of_flow(self, kernels):
        """R = (|θ₀| + |θ₁| + |θ₂|) · (|θ₃| + |θ₄|)."""
        first, second = np.abs(kernels[:3]).sum(), np.abs(kernels[3:]).sum()
        return np.array([second] * 3 + [first] * 2)


SEEN = Seen(FIVE, [3, 2], ByHand(), np.random.default_rng(0))


def test_each_score_by_hand():
    assert magnitude(SEEN).tolist() == [3.0, 1.0, 2.0, 1.0, 5.0]
    np.testing.assert_allclose(lamp(SEEN), [1.0, 1 / 14, 4 / 13, 1 / 26, 1.0])
    assert snip(SEEN).tolist() == [9.0, 2.0, 12.0, 4.0, 125.0]  # |θ · c θ|
    assert grasp(SEEN).tolist() == [9.0, 4.0, 36.0, 16.0, 625.0]  # θ · c · c θ
    assert synflow(SEEN).tolist() == [18.0, 6.0, 12.0, 6.0, 30.0]  # |θ| times the sum of the other kernel
    drawn = random(Seen(FIVE, [5], stream=masks.stream(0, "score")))
    np.testing.assert_array_equal(drawn, random(Seen(FIVE, [5], stream=masks.stream(0, "score"))))
    assert set(SCORES) == {"magnitude", "lamp", "snip", "grasp", "synflow", "random"}


def test_lamp_of_a_kernel_of_zeros_is_zero_and_not_undefined():
    assert lamp(Seen(np.zeros(3), [3])).tolist() == [0.0, 0.0, 0.0]


def test_grasp_removes_first_what_gradient_flow_can_spare():
    """A score below 0: removing the weight would raise the norm of the gradient."""
    one = Seen(np.array([1.0, 1.0]), [2], type("H", (), {"hessian_product": lambda self, k: np.array([-3.0, 0.5])})())
    assert masks.prune(one, [(2, 1)], Level("quantile", 0.5), "grasp").mask.tolist() == [False, True]


def test_each_allocation_by_hand():
    shapes, scores = (
        [(1, 1, 2, 2), (1, 1, 4, 2)],
        np.array([9.0, 8.0, 7.0, 6.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.5, 0.25, 0.1]),
    )

    def kept(word: str, quantile: float) -> list[int]:
        return np.flatnonzero(allocation(word)(scores, shapes, quantile)).tolist()

    assert kept("global", 0.5) == [0, 1, 2, 3, 7, 8]
    assert kept("uniform", 0.5) == [0, 1, 5, 6, 7, 8]
    # of 6, in + out + height + width is 6 and 8: 2.57 and 3.43 seats, so 3 and 3
    assert kept("erk", 0.5) == [0, 1, 2, 6, 7, 8]
    # inputs are the last but one axis: of the second kernel the columns (1, 3, 5, .25) and (2, 4, .5, .1)
    assert kept("2:4", 0.5) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert kept("1:2", 0.5) == [0, 1, 6, 7, 8, 9]
    assert set(ALLOCATIONS) == {"global", "uniform", "erk"}


def test_erk_counts_groups():
    """A depthwise kernel has one input for each output: (1 + 16 + 3 + 3) of 144, not (16 + 1 + …) of a dense one."""
    shapes = [(3, 3, 16, 1), (1, 1, 16, 16)]
    mask = ALLOCATIONS["erk"](np.random.default_rng(0).random(144 + 256), shapes, 0.9)
    assert [int(mask[:144].sum()), int(mask[144:].sum())] == [16, 24]  # 23 : 34 of 40


def test_n_of_m_leaves_kernels_whole_that_it_does_not_divide():
    shapes = [(3, 3, 3, 8), (3, 3, 8, 1), (1, 1, 8, 4), (8, 10)]
    scores = np.random.default_rng(0).random(sum(map(prod, shapes)))
    parts = np.split(allocation("2:4")(scores, shapes, 0.5), np.cumsum([prod(s) for s in shapes])[:-1])
    assert [int(part.sum()) for part in parts] == [216, 72, 16, 40]
    assert [divides(shape, 4) for shape in shapes] == [False, False, True, True]


# ---- in general

shape = st.tuples(st.sampled_from([1, 3]), st.integers(1, 6), st.integers(1, 6)).map(lambda s: (s[0], s[0], *s[1:]))
shapes_drawn = st.lists(shape, min_size=1, max_size=4)
quantile = st.floats(0.0, 1.0, exclude_max=True)
methods = ["lamp/global", *(f"{score}/{where}" for score in SCORES if score != "lamp" for where in ALLOCATIONS)]


class AnyNetwork:
    """Gradients that depend on all weights that are left, as real ones do."""

    def of_loss(self, kernels):
        return np.cos(np.arange(kernels.size)) * np.abs(kernels).sum() + kernels

    def hessian_product(self, kernels):
        return np.sin(np.arange(kernels.size)) * np.abs(kernels).sum() - kernels

    def of_flow(self, kernels):
        return np.abs(kernels).sum() - np.abs(kernels)


def mask_of(word: str, shapes, level: float, within=None, inverted: bool = False) -> np.ndarray:
    found, sizes = method(word), [prod(s) for s in shapes]
    weights = np.round(np.random.default_rng(len(shapes)).normal(size=sum(sizes)), 1)  # many ties
    seen = Seen(weights, sizes, AnyNetwork(), masks.stream(0, "score"))
    return masks.prune(seen, shapes, Level("quantile", level), found.score, found.allocation, within, inverted).mask


@pytest.mark.parametrize("word", methods)
@settings(max_examples=25)
@given(shapes=shapes_drawn, levels=st.tuples(quantile, quantile).map(sorted))
def test_counts_are_exact_and_masks_nested(word, shapes, levels):
    low, high = (mask_of(word, shapes, level) for level in levels)
    sizes = [prod(s) for s in shapes]
    for mask, level in ((low, levels[0]), (high, levels[1])):
        going = sum(round(level * n) for n in sizes) if word.endswith("uniform") else round(level * sum(sizes))
        assert int((~mask).sum()) == going
    assert np.all(low[high]), "the mask of the higher quantile is not inside that of the lower"


@pytest.mark.parametrize("word", methods)
@settings(max_examples=15)
@given(shapes=shapes_drawn, levels=st.tuples(quantile, quantile).map(sorted))
def test_a_later_round_lies_inside_the_one_before(word, shapes, levels):
    first = mask_of("random/" + word.partition("/")[2], shapes, levels[0])
    second = mask_of(word, shapes, levels[1], within=first)
    assert np.all(first[second]) and second.sum() <= first.sum()
    if not word.endswith("uniform"):
        assert int((~second).sum()) == round(levels[1] * second.size)


@given(shapes_drawn, st.integers(1, 3))
def test_n_of_m_keeps_n_of_every_m(shapes, n):
    shapes = [(*s[:2], 4 * s[2], s[3] + 1) for s in shapes]
    mask = mask_of(f"magnitude/{n}:4", shapes, 0.0)
    for part, one in zip(np.split(mask, np.cumsum([prod(s) for s in shapes])[:-1]), shapes, strict=True):
        assert (np.moveaxis(part.reshape(one), -2, -1).reshape(-1, 4).sum(1) == n).all()


def test_inverted_takes_the_largest_away():
    whole = mask_of("magnitude", [(1, 1, 5, 5)], 0.6)
    turned = mask_of("magnitude", [(1, 1, 5, 5)], 0.6, inverted=True)
    assert turned.sum() == whole.sum() and (whole & turned).sum() < whole.sum() / 2


def test_inverted_at_a_threshold_takes_as_many_of_the_largest():
    weights = np.array([0.5, -0.1, 0.2, -0.9, 0.05], np.float32)
    found = [
        masks.prune(Seen(weights, [5]), [(5, 1)], Level("threshold", 0.3), inverted=way).mask for way in (False, True)
    ]
    assert [list(np.flatnonzero(~mask)) for mask in found] == [[1, 2, 4], [0, 2, 3]]


def test_two_masks_share_what_they_share_and_chance_is_counted_in_every_kernel():
    one, other = np.array([1, 1, 0, 0, 1, 0], bool), np.array([1, 0, 1, 0, 1, 0], bool)
    found = overlap(one, other, [4, 2])
    assert found.shared == pytest.approx(2 / 3)
    assert found.chance == pytest.approx(3 * 3 / 6 / 3)
    assert found.chance_in_kernels == pytest.approx((2 * 2 / 4 + 1 * 1 / 2) / 3)
    assert overlap(one, ~one, [4, 2]).shared == 0.0


# ---- on a real network


def test_lamp_leaves_something_of_every_kernel_where_magnitude_empties_one():
    network = build("resnet20", image_size=8, channels=3, classes=10, width=0.25)
    weights = network.initial(0).kernels.copy()
    sizes = masks.kernel_sizes(network)
    weights[: sizes[0]] *= 1e-3  # a kernel of small weights
    level = Level("quantile", 1 - len(sizes) * 1.5 / weights.size)
    by = {s: masks.prune(Seen(weights, sizes), masks.kernel_shapes(network), level, s) for s in ("magnitude", "lamp")}
    assert by["magnitude"].mask.sum() == by["lamp"].mask.sum() == weights.size - round(level.value * weights.size)
    assert masks.emptied(by["magnitude"].mask, network) and not masks.emptied(by["lamp"].mask, network)
    assert by["lamp"].threshold is None


@pytest.fixture(scope="module")
def device(program):
    """Gradients of a narrow MobileNetV2 on the dry run's digits."""
    return gradients_of(program, "mobilenet_v2_small", 0.35)


def gradients_of(program, model: str, width: float):
    from dataclasses import replace

    from sweep.experiment import Data, Model
    from sweep.training.gradients import DeviceGradients
    from tests.conftest import tiny

    run = program(replace(tiny(batch=32), model=Model(model, width), data=Data("digits")))
    weights = run.network.initial(0)
    return DeviceGradients(run, weights, seed=0), weights


@pytest.mark.tensorflow
def test_gradients_of_the_loss_are_those_of_small_steps(device):
    gradients, weights = device
    found = gradients.of_loss(weights.kernels)
    direction = np.random.default_rng(1).normal(size=found.size).astype(np.float32)
    direction *= 1e-3 / np.linalg.norm(direction) * np.linalg.norm(weights.kernels)
    images = gradients._batches
    assert sum(len(labels) for _, labels in images) == 100 - 100 % len(images)
    losses = [np.mean([gradients._loss(weights.kernels + sign * direction, *batch, 1.0) for batch in images])
              for sign in (1, -1)]  # fmt: skip
    assert (losses[0] - losses[1]) / 2 == pytest.approx(float(found @ direction), rel=0.1, abs=1e-3)


@pytest.mark.tensorflow
def test_the_hessian_product_is_that_of_forward_differentiation(program):
    """H g the other way round: the derivative of the gradient in the direction g, of all batches together."""
    import tensorflow as tf

    gradients, weights = gradients_of(program, "one_convolution", 0.25)
    batches, kernels = gradients._batches, tf.constant(weights.kernels)
    assert len(batches) == 4
    direction = sum(gradient_of(gradients, kernels, batch) for batch in batches) / len(batches)
    products = []
    for batch in batches:
        with tf.autodiff.ForwardAccumulator(kernels, direction) as forward:
            gradient = gradient_of(gradients, kernels, batch)
        products.append(forward.jvp(gradient).numpy())
    expected, product = np.mean(products, 0), gradients.hessian_product(weights.kernels)
    assert np.linalg.norm(product - expected) < 1e-2 * np.linalg.norm(expected)


def gradient_of(gradients, kernels, batch):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(kernels)
        loss = gradients._loss(kernels, *batch, 200.0)
    return tape.gradient(loss, kernels)


@pytest.mark.tensorflow
def test_the_flow_is_the_same_into_and_out_of_every_layer(device):
    """Σ θ ⊙ ∂R/∂θ = R for every kernel all paths lead through (Tanaka et al.: scores are conserved)."""
    gradients, weights = device
    network = gradients.network
    scores = np.abs(weights.kernels) * gradients.of_flow(weights.kernels)
    sums = {name: float(part.sum()) for name, part in network.split("kernel", scores).items()}
    total = float(network.flow(np.abs(weights.kernels).astype(np.float64)))
    assert np.isfinite(total) and total > 0
    for name in ("Conv1/kernel", "Conv_1/kernel", "predictions/kernel"):
        assert sums[name] == pytest.approx(total, rel=1e-6), name


@pytest.mark.tensorflow
def test_images_are_drawn_by_seed_from_every_class(device):
    from sweep.training.gradients import DeviceGradients

    gradients, weights = device
    labels = np.concatenate([np.asarray(found) for _, found in gradients._batches])
    assert set(labels.tolist()) == set(range(10)) and np.bincount(labels).max() == 10
    again, other = (DeviceGradients(gradients.program, weights, seed)._batches[0][0] for seed in (0, 1))
    np.testing.assert_array_equal(again, gradients._batches[0][0])
    assert not np.array_equal(other, gradients._batches[0][0])
