"""Blur-pool: what is blurred, by which numbers, and that every interpreter of an architecture does it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from models import Weights, build
from models.blur import Blurred, blurred
from models.network import outline
from tests.models.test_layers import drawn, same


def by_hand(x: np.ndarray) -> np.ndarray:
    """Images `[images, height, width, channels]`, every pixel the weighted mean of nine, with zeros outside."""
    wide, (_, height, width, _) = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), x.shape
    nine = [[1, 2, 1], [2, 4, 2], [1, 2, 1]]
    return sum(nine[i][j] / 16 * wide[:, i : i + height, j : j + width] for i in range(3) for j in range(3))


def blurs(net) -> dict[str, tuple[int, ...]]:
    return {layer.name: layer.output for layer in net.layers if layer.kind == "blur"}


@pytest.mark.tensorflow
@pytest.mark.parametrize("pixels", [8, 7, 1])
def test_what_a_strided_convolution_reads_is_blurred_if_it_has_16_channels(pixels):
    from models.layers import Compute

    for channels, stride, expected in ((16, 2, by_hand), (15, 2, np.array), (16, 1, np.array)):
        x = drawn(2, pixels, pixels, channels)
        net = Compute({"a/kernel": drawn(3, 3, channels, 4), "b/kernel": drawn(3, 3, channels, 1)}, training=True)
        for layer in (lambda net, x, s=stride: net.convolution("a", x, 4, 3, s, symmetric=True),
                      lambda net, x, s=stride: net.depthwise("b", x, 3, s)):  # fmt: skip
            np.testing.assert_allclose(layer(Blurred(net), x), layer(net, expected(x)), rtol=1e-4, atol=1e-5)


@pytest.mark.tensorflow
@pytest.mark.parametrize(("pixels", "small"), [(8, 0), (7, 0), (8, 64)])
def test_shaped_layers_blur_as_plain_ones_do(pixels, small, monkeypatch):
    monkeypatch.setattr("models.shaped.SMALL", small)
    weights = {"layer/kernel": drawn(3, 3, 16, 1)}
    same(lambda net, x: Blurred(net).depthwise("layer", x, 3, 2), drawn(2, pixels, pixels, 16), weights)


def linear(net, x):
    """Layers without norm and activation, two of which blur."""
    x = net.depthwise("depthwise", net.convolution("stem", x, 16, 3, 2), 3, 2)
    return net.dense("classifier", net.pool(net.convolution("last", x, 8, 3, 2, bias=True)), 3)


@pytest.mark.tensorflow
def test_the_paths_that_synflow_adds_up_are_blurred_too():
    import tensorflow as tf

    net = outline("linear", partial(blurred, linear), image_size=16, channels=2, classes=3)
    weights = Weights(*map(tf.constant, net.initial(0)))
    logits, _ = net.apply(weights, tf.ones((1, 16, 16, 2)), training=False)
    assert float(net.flow(weights.kernels)) == pytest.approx(float(tf.reduce_sum(logits)), rel=1e-4)
    without = outline("linear", linear, image_size=16, channels=2, classes=3)
    assert abs(float(without.flow(weights.kernels)) / float(net.flow(weights.kernels)) - 1) > 0.01


def test_in_resnet18_first_convolutions_and_shortcuts_of_later_stages_are_blurred_and_the_images_are_not():
    found = blurs(build("resnet18", image_size=64, channels=3, classes=5, blur=True))
    expected = {f"conv{stage}_block1_{i}_conv_blur": (pixels, pixels, channels)
                for stage, pixels, channels in ((3, 16, 64), (4, 8, 128), (5, 4, 256)) for i in (0, 1)}  # fmt: skip
    assert found == expected


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet20"])
def test_blur_pool_adds_multiply_adds_and_nothing_else(name):
    plain, net = (build(name, image_size=32, channels=3, classes=10, blur=blur) for blur in (False, True))
    assert not plain.blurred and net.blurred
    assert net.variables == plain.variables
    assert tuple(layer for layer in net.layers if layer.kind != "blur") == plain.layers
    assert net.macs - plain.macs == sum(9 * high * wide * channels for high, wide, channels in blurs(net).values()) > 0
    assert (
        net.parameters
        == plain.parameters
        == sum(layer.parameters for layer in net.layers)
        + sum(v.size for v in net.variables if v.name.rpartition("/")[2] not in ("kernel", "bias"))
    )
