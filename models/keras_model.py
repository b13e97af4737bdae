"""A network as a Keras model: the interpreter of an architecture that builds Keras layers.

Layers have the names of the network's variables, which for MobileNetV2 are those of keras.applications.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from models.network import Network, Weights
from models.outline import Activation


class KerasLayers:
    """The interpreter of an architecture that builds one Keras layer for every verb."""

    def convolution(
        self, name: str, x: Any, filters: int, size: int, stride: int = 1, bias: bool = False, symmetric: bool = False
    ) -> Any:
        padding = "same"
        if symmetric and stride > 1 and size > 1:
            x, padding = keras.layers.ZeroPadding2D((size - 1) // 2)(x), "valid"
        return keras.layers.Conv2D(filters, size, stride, padding, use_bias=bias, name=name)(x)

    def max_pool(self, x: Any, size: int, stride: int) -> Any:
        if size % 2:
            return keras.layers.MaxPooling2D(size, stride, "valid")(keras.layers.ZeroPadding2D((size - 1) // 2)(x))
        return keras.layers.MaxPooling2D(size, stride, "same")(x)

    def depthwise(self, name: str, x: Any, size: int, stride: int = 1) -> Any:
        return keras.layers.DepthwiseConv2D(size, stride, "same", use_bias=False, name=name)(x)

    def channels(self, x: Any) -> int:
        return int(x.shape[3])

    def blur(self, name: str, x: Any) -> Any:
        """Return `x` averaged twice over 2 × 2 pixels: the same, without weights that could be trained."""
        x = keras.layers.ZeroPadding2D(1)(x)
        for _ in range(2):
            x = keras.layers.AveragePooling2D(2, 1, "valid")(x)
        return x

    def dense(self, name: str, x: Any, units: int) -> Any:
        return keras.layers.Dense(units, name=name)(x)

    def norm(self, name: str, x: Any, epsilon: float, activation: Activation = "") -> Any:
        x = keras.layers.BatchNormalization(momentum=0.9, epsilon=epsilon, name=name)(x)
        return keras.layers.ReLU(6.0 if activation == "relu6" else None)(x) if activation else x

    def relu(self, x: Any) -> Any:
        return keras.layers.ReLU()(x)

    def add(self, x: Any, y: Any) -> Any:
        return keras.layers.Add()([x, y])

    def pool(self, x: Any) -> Any:
        return keras.layers.GlobalAveragePooling2D()(x)


def _standardised(images: Any) -> Any:
    """Return each image with mean 0 and deviation 1, as tf.image.per_image_standardization does."""
    x, every = keras.ops.cast(images, "float32"), (1, 2, 3)
    least = math.prod(images.shape[1:]) ** -0.5
    deviation = keras.ops.maximum(keras.ops.std(x, every, keepdims=True), least)
    return (x - keras.ops.mean(x, every, keepdims=True)) / deviation


def keras_model(
    network: Network,
    weights: Weights,
    scale: list[float] | None = None,
    offset: list[float] | None = None,
    probabilities: bool = True,
) -> keras.Model:
    """Return the network as a Keras model with the given weights; the model can be trained further.

    With `scale` and `offset` (per channel) the model takes pictures as uint8 and computes scale · x + offset itself,
    where they are empty it standardises each picture by itself; without them it takes float32 images that are
    normalised already. `probabilities`: softmax at the end, or logits.
    """
    shape = (network.image_size, network.image_size, network.channels)
    inputs = keras.Input(shape, dtype="float32" if scale is None else "uint8", name="images")
    x = inputs
    if scale is not None:
        x = keras.layers.Rescaling(scale, offset, name="normalisation")(x) if scale else _standardised(x)
    logits = network.architecture(KerasLayers(), x)
    outputs = keras.layers.Softmax(name="probabilities")(logits) if probabilities else logits
    model = keras.Model(inputs, outputs, name=network.name)
    named = network.named(weights)
    for layer in model.layers:
        for variable in layer.weights:
            variable.assign(np.asarray(named[f"{layer.name}/{variable.name}"]))
    return model
