"""The registry of network architectures by name. Nothing here knows about pruning or experiments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from models.blur import blurred
from models.mobilenet_v2 import mobilenet_v2
from models.network import Network, Weights, outline
from models.outline import Initializer
from models.resnet import resnet
from models.resnet_imagenet import resnet_imagenet
from models.vgg import vgg

NETWORKS: dict[str, Callable[..., Any]] = {
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v2_small": partial(mobilenet_v2, small=True),  # for images of about 32 pixels
    "resnet8": partial(resnet, depth=8),
    "resnet20": partial(resnet, depth=20),
    "resnet20_renda": partial(resnet, depth=20, renda=True),  # as in the code of Renda et al. 2020
    "resnet56": partial(resnet, depth=56),
    "resnet18": partial(resnet_imagenet, depth=18),
    "resnet18_small": partial(resnet_imagenet, depth=18, small=True),
    "resnet50": partial(resnet_imagenet, depth=50),
    "resnet50_keras": partial(resnet_imagenet, depth=50, first=True),  # strides as in keras.applications
    "vgg11_bn": partial(vgg, depth=11),
    "vgg16_bn": partial(vgg, depth=16),
    "vgg11": partial(vgg, depth=11, norm=False),
}


def build(
    name: str, *, image_size: int, channels: int, classes: int, width: float = 1.0, initializer: Initializer = "he",
    blur: bool = False,
) -> Network:  # fmt: skip
    """Return the network `name`, with `width` times the published channels; raise ValueError if there is none.

    `blur`: with blur-pool before convolutions that have a stride (models.blur).
    """
    if name not in NETWORKS:
        raise ValueError(f"no network named {name!r}; there are {', '.join(NETWORKS)}")
    architecture = partial(NETWORKS[name], classes=classes, width=width)
    architecture = partial(blurred, architecture) if blur else architecture
    return outline(name, architecture, image_size, channels, classes, initializer)


__all__ = ["NETWORKS", "Initializer", "Network", "Weights", "build"]
