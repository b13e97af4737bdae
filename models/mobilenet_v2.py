"""MobileNetV2 (Sandler et al. 2018), with the layer names of keras.applications so that weights can be exchanged."""

from __future__ import annotations

from typing import Any

# expansion, channels, repeats, stride of the first block
STAGES = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
EPSILON = 1e-3


def mobilenet_v2(net: Any, x: Any, classes: int, width: float, small: bool = False) -> Any:
    """Return the logits of `x`. `small`: stem and second stage have stride 1, for images of about 32 pixels."""
    stem = divisible(32 * width)
    x = net.convolution("Conv1", x, stem, 3, stride=1 if small else 2)
    x = net.norm("bn_Conv1", x, EPSILON, "relu6")
    channels, block = stem, 0
    for expansion, filters, repeats, usual_stride in STAGES:
        stride = 1 if small and filters == 24 else usual_stride
        out = divisible(filters * width)
        for repeat in range(repeats):
            x = inverted_residual(net, x, block, channels, out, expansion, stride if repeat == 0 else 1)
            channels, block = out, block + 1
    x = net.convolution("Conv_1", x, divisible(1280 * max(width, 1.0)), 1)
    x = net.norm("Conv_1_bn", x, EPSILON, "relu6")
    return net.dense("predictions", net.pool(x), classes)


def inverted_residual(net: Any, x: Any, block: int, channels: int, out: int, expansion: int, stride: int) -> Any:
    """Return `x` expanded, convolved depthwise and projected to `out` channels, plus `x` if the shape is the same."""
    name = f"block_{block}" if block else "expanded_conv"
    y = x
    if expansion > 1:
        y = net.convolution(f"{name}_expand", y, channels * expansion, 1)
        y = net.norm(f"{name}_expand_BN", y, EPSILON, "relu6")
    y = net.depthwise(f"{name}_depthwise", y, 3, stride)
    y = net.norm(f"{name}_depthwise_BN", y, EPSILON, "relu6")
    y = net.convolution(f"{name}_project", y, out, 1)
    y = net.norm(f"{name}_project_BN", y, EPSILON)
    return net.add(x, y) if stride == 1 and channels == out else y


def divisible(channels: float) -> int:
    """Return `channels` rounded to a multiple of 8, but never less than 0.9 × `channels`."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded
