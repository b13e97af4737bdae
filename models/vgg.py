"""VGG for images of 32 pixels (Simonyan and Zisserman 2015; one linear classifier, as Liu et al. 2017 prune it)."""

from __future__ import annotations

from typing import Any

EPSILON = 1e-5
STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}  # convolutions per stage
CHANNELS = (64, 128, 256, 512, 512)


def vgg(net: Any, x: Any, classes: int, width: float, depth: int, norm: bool = True) -> Any:
    """Return the logits of `x`. `norm`: batch norm after every convolution; without it convolutions have a bias."""
    for stage, (count, channels) in enumerate(zip(STAGES[depth], CHANNELS, strict=True), 1):
        for block in range(1, count + 1):
            name = f"stage{stage}_conv{block}"
            x = net.convolution(name, x, round(channels * width), 3, bias=not norm)
            x = net.norm(f"{name}_norm", x, EPSILON, "relu") if norm else net.relu(x)
        x = net.max_pool(x, 2, 2)
    return net.dense("classifier", net.pool(x), classes)
