"""MobileNetV2 weights from keras.applications and from its published weight files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models.network import Network, Weights


def from_keras(network: Network, model: Any) -> Weights:
    """Return the weights of a keras.applications.MobileNetV2 with the same width and number of classes as `network`."""
    return network.flat({v.path: v.numpy() for v in model.weights})


def load(network: Network, path: Path, width: float = 1.0) -> Weights:
    """Return the weights in a file that Keras wrote for its MobileNetV2: `.h5` (Keras 2) or `.weights.h5` (Keras 3)."""
    import keras

    model = keras.applications.MobileNetV2(
        input_shape=(network.image_size, network.image_size, network.channels),
        alpha=width,
        classes=network.classes,
        weights=None,
    )
    model.load_weights(path)
    return from_keras(network, model)
