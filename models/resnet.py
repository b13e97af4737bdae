"""The ResNets for CIFAR (He et al. 2016, section 4.2): three stages of 16, 32, 64 channels.

Where a stage changes the shape the shortcut is a 1×1 convolution with batch norm. In the networks whose pruning curves
are published (Renda et al. 2020: `renda=True`) it is one in the first stage too, and strides pad alike on all sides.
"""

from __future__ import annotations

from typing import Any

EPSILON = 1e-5


def resnet(net: Any, x: Any, classes: int, width: float, depth: int, renda: bool = False) -> Any:
    """Return the logits of `x`, computed by a ResNet of `depth` = 6n + 2 layers with n blocks per stage."""
    blocks = (depth - 2) // 6
    channels = round(16 * width)
    x = net.norm("stem_norm", net.convolution("stem", x, channels, 3), EPSILON, "relu")
    for stage in range(3):
        filters = round(16 * 2**stage * width)
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            project = filters != channels or (renda and block == 0)
            x = _block(net, x, f"stage{stage + 1}_block{block + 1}", filters, stride, project, symmetric=renda)
            channels = filters
    return net.dense("classifier", net.pool(x), classes)


def _block(net: Any, x: Any, name: str, filters: int, stride: int, project: bool, symmetric: bool) -> Any:
    y = net.convolution(f"{name}_conv1", x, filters, 3, stride, symmetric=symmetric)
    y = net.norm(f"{name}_norm1", y, EPSILON, "relu")
    y = net.norm(f"{name}_norm2", net.convolution(f"{name}_conv2", y, filters, 3), EPSILON)
    if project:
        shortcut = net.convolution(f"{name}_shortcut", x, filters, 1, stride)
        x = net.norm(f"{name}_shortcut_norm", shortcut, EPSILON)
    return net.relu(net.add(x, y))
