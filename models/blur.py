"""Blur-pool (Zhang 2019): the input of every convolution with a stride is blurred first, against aliasing.

As in recipes for ImageNet, inputs with at least 16 channels are blurred (not the images), by the fixed kernel
[1, 2, 1]ᵀ [1, 2, 1] / 16 with zeros around the border. Max pooling stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

KERNEL = (np.outer((1, 2, 1), (1, 2, 1)) / 16).astype(np.float32)
LEAST_CHANNELS = 16


class Blurred:
    """The interpreter `net` of an architecture, with blurred inputs of the convolutions that have a stride."""

    def __init__(self, net: Any) -> None:
        self.net = net

    def __getattr__(self, verb: str) -> Any:
        return getattr(self.net, verb)

    def convolution(self, name: str, x: Any, filters: int, size: int, stride: int = 1, **how: bool) -> Any:
        return self.net.convolution(name, self._input(name, x, stride), filters, size, stride, **how)

    def depthwise(self, name: str, x: Any, size: int, stride: int = 1) -> Any:
        return self.net.depthwise(name, self._input(name, x, stride), size, stride)

    def _input(self, name: str, x: Any, stride: int) -> Any:
        blurs = stride > 1 and self.net.channels(x) >= LEAST_CHANNELS
        return self.net.blur(f"{name}_blur", x) if blurs else x


def blurred(architecture: Callable[[Any, Any], Any], net: Any, x: Any) -> Any:
    """Return what `architecture` computes of `x` with blur-pool."""
    return architecture(Blurred(net), x)
