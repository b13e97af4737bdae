"""MobileNetV2 weights from keras.applications and from its published weight files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models.network import Network, Weights


def from_keras(network: Network, model: Any) -> Weights:
    """The weights of a keras.applications.MobileNetV2 of the same width and number of classes."""
    return network.flat({v.path: v.numpy() for v in model.weights})


def load(network: Network, path: Path, width: float = 1.0) -> Weights:
    """Weights of a file written by Keras for its MobileNetV2: `.h5` of Keras 2 or `.weights.h5` of Keras 3."""
    import keras

    model = keras.applications.MobileNetV2(
        input_shape=(network.image_size, network.image_size, network.channels),
        alpha=width,
        classes=network.classes,
        weights=None,
    )
    model.load_weights(path)
    return from_keras(network, model)
