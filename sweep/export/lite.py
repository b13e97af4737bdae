"""LiteRT (TensorFlow Lite) files: converted, with pruned weights stored sparse, run, and their operators read.

A file is converted with EXPERIMENTAL_SPARSITY, which stores kernels of at least 30 % zeros compressed; XNNPACK then
computes them sparse where more than two thirds of the 1 × 1 weights are 0 and every layer has the form of models.mobile.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from models import Network, Weights, mobile
from sweep.errors import Refused

Precision = Literal["float32", "float16", "int8"]


def converted(
    network: Network,
    weights: Weights,
    scale: list[float],
    offset: list[float],
    precision: Precision = "float32",
    sparse: bool = True,
    preprocessing: bool = True,
    probabilities: bool = True,
    samples: np.ndarray | None = None,
) -> bytes:
    """Return a LiteRT file of a network. `samples`: training images (uint8) that the ranges of int8 are taken from."""
    sparse = sparse and precision != "int8"  # no sparse int8 kernels exist, and x86 does not load such a classifier
    rewritten = sparse and mobile.fits(network)
    shape = (1, network.image_size, network.image_size, network.channels)

    def outputs(images: Any) -> Any:
        x = tf.cast(images, tf.float32) * scale + offset if preprocessing else images
        constants = Weights(*(tf.constant(part) for part in weights))
        logits = mobile.apply(network, weights, x) if rewritten else network.apply(constants, x, False)[0]
        return tf.nn.softmax(logits) if probabilities else logits

    signature = [tf.TensorSpec(shape, tf.uint8 if preprocessing else tf.float32, name="images")]
    function = tf.function(outputs, input_signature=signature, autograph=False)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], function)
    converter.optimizations = [tf.lite.Optimize.EXPERIMENTAL_SPARSITY] if sparse else []
    if precision != "float32":
        converter.optimizations.append(tf.lite.Optimize.DEFAULT)
    if precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if precision == "int8":
        assert samples is not None, "int8 needs images to take ranges from"
        ready = samples if preprocessing else (samples * np.float32(scale) + np.float32(offset))
        converter.representative_dataset = _one_by_one(ready if preprocessing else ready.astype(np.float32))
    return bytes(converter.convert())


def _one_by_one(images: np.ndarray) -> Callable[[], Iterator[list[np.ndarray]]]:
    return lambda: ([image[None]] for image in images)


def interpreter(model: bytes, threads: int = 1) -> Any:
    """Return LiteRT's interpreter of a file, ready to run; raise Refused where LiteRT is not installed."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        raise Refused("ai-edge-litert is not installed; expected pip install 'lottery-sweep[export]'") from None
    out = Interpreter(model_content=model, num_threads=threads)
    out.allocate_tensors()
    return out


def run(model: bytes, images: np.ndarray) -> np.ndarray:
    """Return what the file computes for images, one after the other: [images, classes]."""
    ready = interpreter(model)
    given, wanted = ready.get_input_details()[0]["index"], ready.get_output_details()[0]["index"]
    out = []
    for image in images:
        ready.set_tensor(given, image[None])
        ready.invoke()
        out.append(ready.get_tensor(wanted)[0].copy())
    return np.stack(out)
