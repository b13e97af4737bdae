"""Networks that are traced and compiled in less time than those of the registry."""

from __future__ import annotations

from functools import partial
from typing import Any

from models.mobilenet_v2 import inverted_residual
from models.resnet import resnet

one_convolution = partial(resnet, depth=2)  # a convolution, a norm, a classifier


def inverted_residuals(net: Any, x: Any, classes: int = 4, width: float = 1.0) -> Any:
    """Every kind of block of MobileNetV2 once: not expanded, with a stride, with a shortcut."""
    x = net.norm("stem_norm", net.convolution("stem", x, 8, 3), 1e-3, "relu6")
    for number, (expansion, channels, out, stride) in enumerate([(1, 8, 16, 1), (6, 16, 24, 2), (6, 24, 24, 1)]):
        x = inverted_residual(net, x, number, channels, out, expansion, stride)
    return net.dense("classifier", net.pool(x), classes)
