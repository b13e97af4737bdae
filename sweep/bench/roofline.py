"""The least time a training step can take: its arithmetic and its memory traffic, at the rates of this device.

Both rates are measured here and now, by a large matrix product and a large copy, so that the share holds on any device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import tensorflow as tf

from models import Network
from sweep.devices import Devices

# Forward the output of a convolution is written, and read by what normalises it. Backward the gradient of what was
# normalised is written; it and the output are read for the sums of batch norm and again for the output's gradient;
# that is written, and read by the products with weights and with input; the input is read for the latter.
PASSES = 10
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
VECTORS = 8  # of float32 per weight and step: weight, momentum, gradient, each read and written; mask and cast copy


@dataclass(frozen=True)
class Rates:
    """What the device does at best."""

    operations: float  # per second, in a matrix product
    bytes: float  # per second, read plus written

    def seconds(self, network: Network, batch: int, precision: str) -> float:
        """The least a training step of one device takes."""
        return max(operations(network, batch) / self.operations, traffic(network, batch, precision) / self.bytes)


def operations(network: Network, batch: int) -> float:
    """Two per multiply-add; backward costs two products for each of forward."""
    return 2.0 * 3.0 * network.macs * batch


def traffic(network: Network, batch: int, precision: str) -> float:
    """Bytes through memory: every layer's output `PASSES` times, the weights once."""
    outputs = sum(a * b * c for a, b, c in (layer.output for layer in network.layers))
    return float(PASSES * BYTES[precision] * outputs * batch + VECTORS * 4 * network.parameters)


def measured(devices: Devices, precision: str) -> Rates:
    side, length = (8192, 1 << 28) if devices.kind == "GPU" else (1024, 1 << 24)
    with tf.device(f"/{devices.kind}:0"):
        matrix = tf.cast(tf.random.stateless_normal((side, side), (1, 2)), precision)
        long = tf.random.stateless_uniform((length,), (3, 4))
        product = _seconds(tf.function(lambda: tf.matmul(matrix, matrix)))
        copy = _seconds(tf.function(lambda: long + 1.0))
    return Rates(2.0 * side**3 / product, 2.0 * 4.0 * length / copy)


def _seconds(work: Callable[[], Any], calls: int = 5) -> float:
    """Median; the last number of the result is fetched, so that the device is done."""

    def once() -> float:
        began = time.perf_counter()
        tf.reshape(work(), (-1,))[-1].numpy()
        return time.perf_counter() - began

    once()
    return median(once() for _ in range(calls))
