"""The ResNets for ImageNet (He et al. 2016, table 1), layers named as in keras.applications.

The stride of 2 is in the first 3 × 3 convolution of a block, as in PyTorch ("v1.5"); with `first=True` it is in the
first 1 × 1 convolution, as published and as in Keras.
"""

from __future__ import annotations

from typing import Any

EPSILON = 1.001e-5
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def resnet_imagenet(
    net: Any, x: Any, classes: int, width: float, depth: int, first: bool = False, small: bool = False
) -> Any:
    """Return the logits of `x`. `small`: a 3 × 3 stem without stride or pooling, for images of about 32 pixels."""
    channels = round(64 * width)
    size, stride = (3, 1) if small else (7, 2)
    x = net.convolution("conv1_conv", x, channels, size, stride, symmetric=True)
    x = net.norm("conv1_bn", x, EPSILON, "relu")
    x = x if small else net.max_pool(x, 3, 2)
    for stage, count in enumerate(BLOCKS[depth]):
        filters = round(64 * 2**stage * width)
        for block in range(count):
            name, stride = f"conv{stage + 2}_block{block + 1}", 2 if stage and not block else 1
            if depth < 50:
                x = _basic(net, x, name, filters, stride, project=stride > 1)
            else:
                x = _bottleneck(net, x, name, filters, stride, project=not block, first=first)
    return net.dense("predictions", net.pool(x), classes)


def _basic(net: Any, x: Any, name: str, filters: int, stride: int, project: bool) -> Any:
    shortcut = _normed(net, x, f"{name}_0", filters, 1, stride) if project else x
    y = _normed(net, x, f"{name}_1", filters, 3, stride, "relu")
    return net.relu(net.add(shortcut, _normed(net, y, f"{name}_2", filters, 3)))


def _bottleneck(net: Any, x: Any, name: str, filters: int, stride: int, project: bool, first: bool) -> Any:
    shortcut = _normed(net, x, f"{name}_0", 4 * filters, 1, stride) if project else x
    y = _normed(net, x, f"{name}_1", filters, 1, stride if first else 1, "relu")
    y = _normed(net, y, f"{name}_2", filters, 3, 1 if first else stride, "relu")
    return net.relu(net.add(shortcut, _normed(net, y, f"{name}_3", 4 * filters, 1)))


def _normed(net: Any, x: Any, name: str, filters: int, size: int, stride: int = 1, activation: str = "") -> Any:
    x = net.convolution(f"{name}_conv", x, filters, size, stride, symmetric=True)
    return net.norm(f"{name}_bn", x, EPSILON, activation)
