"""The least time of a training step: its arithmetic and its memory traffic, at the rates of this device.

Both rates are measured on the device, by a large matrix product and a large copy, so that it works on any device.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import tensorflow as tf

from models import Network
from models.outline import Layer
from sweep.devices import Devices

# Reads and writes of a convolution's output. Forward: written, and read by batch norm. Backward: the gradient of the
# normalised output is written; it and the output are read for batch norm's sums and again for the output's gradient,
# which is written and read by the products with weights and with input; the input is read for the latter.
PASSES = 10
# With many more outputs than inputs, batch norm is computed from the inputs' moments: the output is written and read;
# its gradient is written, and read by both products; the output is read for the activation's gradient.
WIDENING_PASSES = 6
BLUR_PASSES = 4  # forward: the input is read and the output written; backward: the same of their gradients
VECTORS = 8  # float32 numbers per weight and step: weight, momentum, gradient, read and written; mask, cast copy


@dataclass(frozen=True)
class Rates:
    """The best rates of a device."""

    operations: float  # per second, in a matrix product
    bytes: float  # per second, read plus written

    def seconds(self, network: Network, batch: int, precision: str) -> float:
        """Return the least seconds of a training step on one device: max(operations / rate, bytes / rate)."""
        return max(operations(network, batch) / self.operations, traffic(network, batch, precision) / self.bytes)


def operations(network: Network, batch: int) -> float:
    """Return the operations of a step: 2 per multiply-add, and backward costs twice as much as forward."""
    return 2.0 * 3.0 * network.macs * batch


def traffic(network: Network, batch: int, precision: str) -> float:
    """Return the bytes of a step through memory: a layer's output `_passes` times, and VECTORS numbers per weight."""
    passed = sum(_passes(layer) * math.prod(layer.output) for layer in network.layers)
    return float(tf.as_dtype(precision).size * passed * batch + VECTORS * 4 * network.parameters)


def _passes(layer: Layer) -> int:
    if layer.kind == "blur":
        return BLUR_PASSES
    *inputs, outputs = layer.kernel
    return WIDENING_PASSES if layer.kind == "convolution" and outputs > 2 * math.prod(inputs) else PASSES


def measured(devices: Devices, precision: str) -> Rates:
    """Return the rates of the first device: of a large matrix product in this precision, and of a large copy."""
    side, length = (8192, 1 << 28) if devices.kind == "GPU" else (512, 1 << 22)
    with tf.device(f"/{devices.kind}:0"):
        matrix = tf.cast(tf.random.stateless_normal((side, side), (1, 2)), precision)
        long = tf.random.stateless_uniform((length,), (3, 4))
        product = _seconds(tf.function(lambda: tf.matmul(matrix, matrix)))
        copy = _seconds(tf.function(lambda: long + 1.0))
    return Rates(2.0 * side**3 / product, 2.0 * 4.0 * length / copy)


def _seconds(work: Callable[[], Any], calls: int = 10) -> float:
    """Return the seconds of one call, measured over many so that the host's overhead is hidden."""

    def several() -> float:
        began = time.perf_counter()
        for _ in range(calls):
            result = work()
        tf.reshape(result, (-1,))[-1].numpy()
        return (time.perf_counter() - began) / calls

    several()
    return median(several() for _ in range(3))
