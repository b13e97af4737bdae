"""LiteRT (TensorFlow Lite) files: conversion, with pruned weights stored sparse, and running.

Files are converted with EXPERIMENTAL_SPARSITY, which stores kernels with at least 30 % zeros compressed. XNNPACK
computes them sparse if more than two thirds of the 1 × 1 weights are 0 and layers have the form of models.mobile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from models import Weights
from sweep.errors import Refused
from sweep.export.subject import Subject, Wanted


def converted(subject: Subject, wanted: Wanted) -> bytes:
    """Return a training as a LiteRT file that takes one image at a time."""
    import tensorflow as tf

    from models import mobile

    network, weights = subject.network, subject.weights
    sparse = wanted.sparse and wanted.precision != "int8"  # no sparse int8 kernels exist
    rewritten = sparse and mobile.fits(network)

    def outputs(images: Any) -> Any:
        x = _normalised(images, subject) if wanted.preprocessing else images
        constants = Weights(*(tf.constant(part) for part in weights))
        logits = mobile.apply(network, weights, x) if rewritten else network.apply(constants, x, False)[0]
        return tf.nn.softmax(logits) if wanted.probabilities else logits

    shape = (1, network.image_size, network.image_size, network.channels)
    signature = [tf.TensorSpec(shape, tf.uint8 if wanted.preprocessing else tf.float32, name="images")]
    function = tf.function(outputs, input_signature=signature, autograph=False)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], function)
    converter.optimizations = [tf.lite.Optimize.EXPERIMENTAL_SPARSITY] if sparse else []
    if wanted.precision != "float32":
        converter.optimizations.append(tf.lite.Optimize.DEFAULT)
    if wanted.precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if wanted.precision == "int8":
        assert wanted.samples is not None, "int8 needs images to take ranges from"
        samples = wanted.samples if wanted.preprocessing else subject.normalised(wanted.samples)
        converter.representative_dataset = lambda: ([image[None]] for image in samples)
    return bytes(converter.convert())


def _normalised(images: Any, subject: Subject) -> Any:
    import tensorflow as tf

    if not subject.facts.scale:
        return tf.image.per_image_standardization(images)
    return tf.cast(images, tf.float32) * subject.facts.scale + subject.facts.offset


def interpreter(model: bytes, threads: int = 1) -> Any:
    """Return LiteRT's interpreter of a file, ready to run; raise Refused if LiteRT is not installed."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        raise Refused("ai-edge-litert is not installed; expected pip install 'lottery-sweep[export]'") from None
    out = Interpreter(model_content=model, num_threads=threads)
    out.allocate_tensors()
    return out


def run(model: bytes, images: np.ndarray) -> np.ndarray:
    """Return the outputs of the file for images, one after the other: `[images, classes]`."""
    ready = interpreter(model)
    given, wanted = ready.get_input_details()[0]["index"], ready.get_output_details()[0]["index"]
    out = []
    for image in images:
        ready.set_tensor(given, image[None])
        ready.invoke()
        out.append(ready.get_tensor(wanted)[0].copy())
    return np.stack(out)
