"""The shaped layers compute what the plain ones compute: outputs, gradients, statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from models import Weights, build
from models.network import outline
from tests.networks import inverted_residuals

pytestmark = pytest.mark.tensorflow


def computed(
    kind: str, layers: Callable[[Any, Any], Any], x: np.ndarray, weights: dict[str, np.ndarray], lean: float = 0.0
) -> list[np.ndarray]:
    """Output of some layers, the gradients of their input and weights, and the statistics they found."""
    import tensorflow as tf

    from models.layers import Compute
    from models.shaped import Shaped

    def run(x, weights):
        with tf.GradientTape() as tape:
            tape.watch((x, weights))
            net = (Shaped if kind == "shaped" else Compute)(weights, training=True)
            y = layers(net, net.images(x))
            y = tf.transpose(y, (3, 1, 2, 0)) if kind == "shaped" else y
        # pulled unevenly: an even pull gives batch norm a gradient of zero
        pull = tf.sin(tf.cast(tf.range(tf.size(y)), tf.float32) * 0.7) + lean
        gradients = tape.gradient(y, (x, weights), tf.reshape(pull, tf.shape(y)))
        return y, gradients, net.found

    run = tf.function(run, jit_compile=kind == "shaped")
    done = run(tf.constant(x), {name: tf.constant(array) for name, array in weights.items()})
    return [part.numpy() for part in tf.nest.flatten(done) if part is not None]


def same(layers: Callable[[Any, Any], Any], x: np.ndarray, weights: dict[str, np.ndarray]) -> None:
    plain, shaped = (computed(kind, layers, x, weights) for kind in ("plain", "shaped"))
    assert len(plain) == len(shaped) >= 3
    for expected, received in zip(plain, shaped, strict=True):
        np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def drawn(*shape: int, mean: float = 0.0) -> np.ndarray:
    return np.random.default_rng(5).normal(mean, 1.0, shape).astype(np.float32)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("pixels", [8, 7])
def test_a_shaped_convolution_computes_what_a_plain_one_does(size, stride, pixels):
    same(
        lambda net, x: net.convolution("layer", x, 5, size, stride),
        drawn(2, pixels, pixels, 6),
        {"layer/kernel": drawn(size, size, 6, 5)},
    )


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("pixels", "small"), [(8, 0), (7, 0), (2, 0), (1, 0), (8, 64), (4, 64)])
def test_a_shaped_depthwise_convolution_computes_what_a_plain_one_does(stride, pixels, small, monkeypatch):
    """As shifted images, and of small images as a matrix."""
    monkeypatch.setattr("models.shaped.SMALL", small)
    same(
        lambda net, x: net.depthwise("layer", x, 3, stride),
        drawn(2, pixels, pixels, 6),
        {"layer/kernel": drawn(3, 3, 6, 1)},
    )


def norm_weights(name: str, channels: int, moving_mean: float = 0.0) -> dict[str, np.ndarray]:
    return {
        f"{name}/gamma": drawn(channels, mean=2.0),
        f"{name}/beta": drawn(channels),
        f"{name}/moving_mean": np.full(channels, moving_mean, np.float32),
        f"{name}/moving_variance": np.ones(channels, np.float32),
    }


@pytest.mark.parametrize("activation", ["", "relu", "relu6"])
def test_shaped_batch_norm_computes_what_plain_batch_norm_does(activation):
    same(
        lambda net, x: net.norm("layer", x, 1e-3, activation),
        drawn(4, 8, 8, 6, mean=3.0),
        norm_weights("layer", 6),
    )


def test_batch_norm_of_many_numbers_sums_them_in_two_steps():
    same(lambda net, x: net.norm("layer", x, 1e-3, "relu6"), drawn(4, 70, 70, 2), norm_weights("layer", 2))


def test_batch_norm_of_numbers_far_from_zero_loses_nothing_once_the_moving_mean_is_near():
    x = drawn(4, 8, 8, 6, mean=1000.0)
    received = computed("shaped", lambda net, x: net.norm("layer", x, 1e-3), x, norm_weights("layer", 6, 1001.0))[-1]
    np.testing.assert_allclose(received, x.astype(np.float64).var((0, 1, 2)), rtol=1e-4)


@pytest.mark.parametrize("activation", ["", "relu", "relu6"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_widening_convolution_with_its_batch_norm(size, activation, monkeypatch):
    monkeypatch.setattr("models.shaped.WIDE", 0)
    filters = 7 * size * size
    weights = {"layer/kernel": drawn(size, size, 3, filters), **norm_weights("norm", filters)}
    same(
        lambda net, x: net.norm("norm", net.convolution("layer", x, filters, size), 1e-3, activation),
        drawn(4, 8, 8, 3, mean=1.0),
        weights,
    )


def test_in_bfloat16_a_widening_convolution_is_as_exact_as_the_plain_one(monkeypatch):
    """Far from zero, where sums cancel: nothing may be rounded before they do."""
    import tensorflow as tf

    monkeypatch.setattr("models.shaped.WIDE", 0)
    weights = {"layer/kernel": drawn(1, 1, 8, 24), **norm_weights("norm", 24)}
    x = (drawn(64, 8, 8, 8) + np.linspace(-3, 3, 8)).astype(np.float32)
    x = tf.cast(tf.cast(x, tf.bfloat16), tf.float32).numpy()  # what both see is the same

    def layers(net: Any, x: Any) -> Any:
        return net.norm("norm", net.convolution("layer", x, 24, 1), 1e-3)

    def away(kind: str) -> list[float]:
        got = computed(kind, lambda net, x: tf.cast(layers(net, tf.cast(x, tf.bfloat16)), tf.float32), x, weights, 0.5)
        return [float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(got, true, strict=True)]

    true = computed("plain", layers, x, weights, 0.5)
    plain, shaped = away("plain"), away("shaped")
    pairs = [(round(ours, 6), round(theirs, 6)) for ours, theirs in zip(shaped, plain, strict=True)]
    assert all(ours < 1.5 * theirs + 1e-4 for ours, theirs in pairs), pairs  # the library rounds as its processor does


NETWORKS = {
    "inverted residuals": outline("inverted residuals", inverted_residuals, image_size=16, channels=3, classes=4),
    "resnet8": build("resnet8", image_size=16, channels=3, classes=4, width=0.35),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_training_step_of_a_shaped_network_is_that_of_the_plain_one(name, monkeypatch):
    """Logits, statistics and the gradients of all weights of a training step."""
    import tensorflow as tf

    monkeypatch.setattr("models.shaped.WIDE", 0)
    net = NETWORKS[name]
    images, weights = drawn(16, 16, 16, 3), Weights(*map(tf.constant, net.initial(0)))

    def run(shaped: bool):
        with tf.GradientTape() as tape:
            tape.watch((weights.kernels, weights.others))
            logits, statistics = net.apply(weights, images, True, shaped=shaped)
            loss = tf.reduce_mean(tf.square(logits - 1.0))
        return logits, statistics, *tape.gradient(loss, (weights.kernels, weights.others))

    plain, shaped = tf.function(run)(False), tf.function(run)(True)
    # images changed by 1e-7 move the plain network's gradients by 0.3 % of their norm: kinks of relu6, few images
    for expected, received, share in zip(plain, shaped, (1e-3, 1e-4, 0.03, 0.03), strict=True):
        assert np.linalg.norm(received - expected) < share * np.linalg.norm(expected)
    evaluated = [net.apply(weights, images, False, shaped=shaped)[0] for shaped in (False, True)]
    np.testing.assert_allclose(evaluated[1], evaluated[0], rtol=1e-4, atol=1e-4)
