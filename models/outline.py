"""The description of a network, made without TensorFlow: variables, shapes, multiply-adds.

An architecture is one function written against the verbs of `Outline` (convolution, depthwise, norm, …). Run with an
`Outline` it yields this description; run with `models.layers.Compute` it yields logits. So the counts in a plan or a
report cannot differ from what is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

Shape = tuple[int, int, int]  # height, width, channels
Role = Literal["kernel", "other", "statistic"]
Activation = Literal["", "relu", "relu6"]
Initializer = Literal["he", "lecun"]
Kind = Literal["convolution", "depthwise", "dense", "blur"]


@dataclass(frozen=True)
class Variable:
    """One array of a network and how it is initialized.

    `kernel` = prunable, `other` = trainable but never pruned (biases, batch-norm scale and shift),
    `statistic` = moving mean or variance.
    """

    name: str
    shape: tuple[int, ...]
    role: Role
    start: float = 0.0  # initial value, unless deviation > 0
    deviation: float = 0.0  # standard deviation of the normal distribution it is initialized from
    truncated: bool = False  # that distribution is cut off two deviations from its mean, then widened to `deviation`

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Layer:
    """One layer with a kernel: its shapes and parameters. The kernel of a `blur` is fixed: it has no parameters."""

    name: str
    kind: Kind
    kernel: tuple[int, ...]
    output: Shape
    parameters: int

    @property
    def macs(self) -> int:
        """Return the multiply-adds per image: every number of the kernel is used at every pixel of the output."""
        return self.output[0] * self.output[1] * prod(self.kernel)


class Outline:
    """The interpreter of an architecture that records its variables and layers; `x` is the shape of the activations."""

    def __init__(self, initializer: Initializer = "he") -> None:
        self.initializer = initializer
        self.variables: list[Variable] = []
        self.layers: list[Layer] = []

    def convolution(
        self, name: str, x: Shape, filters: int, size: int, stride: int = 1, bias: bool = False, symmetric: bool = False
    ) -> Shape:
        """Record a convolution, return its output shape. Padding is "SAME", or with `symmetric` equal on both sides."""
        kernel = (size, size, x[2], filters)
        return self._layer(name, "convolution", kernel, (*_strided(x, stride), filters), bias)

    def max_pool(self, x: Shape, size: int, stride: int) -> Shape:
        return (*_strided(x, stride), x[2])

    def depthwise(self, name: str, x: Shape, size: int, stride: int = 1) -> Shape:
        return self._layer(name, "depthwise", (size, size, x[2], 1), (*_strided(x, stride), x[2]))

    def channels(self, x: Shape) -> int:
        return x[2]

    def blur(self, name: str, x: Shape) -> Shape:
        self.layers.append(Layer(name, "blur", (3, 3, x[2], 1), x, parameters=0))
        return x

    def dense(self, name: str, x: Shape, units: int) -> Shape:
        return self._layer(name, "dense", (x[2], units), (1, 1, units), bias=True)

    def norm(self, name: str, x: Shape, epsilon: float, activation: Activation = "") -> Shape:
        for part, start in (("gamma", 1.0), ("beta", 0.0)):
            self.variables.append(Variable(f"{name}/{part}", x[2:], "other", start))
        for part, start in (("moving_mean", 0.0), ("moving_variance", 1.0)):
            self.variables.append(Variable(f"{name}/{part}", x[2:], "statistic", start))
        return x

    def relu(self, x: Shape) -> Shape:
        return x

    def add(self, x: Shape, y: Shape) -> Shape:
        if x != y:
            raise ValueError(f"cannot add {x} and {y}")
        return x

    def pool(self, x: Shape) -> Shape:
        return (1, 1, x[2])

    def _layer(self, name: str, kind: Kind, kernel: tuple[int, ...], output: Shape, bias: bool = False) -> Shape:
        fan_in = prod(kernel[:2] if kind == "depthwise" else kernel[:-1])
        # He et al. 2015: σ² = 2 / fan-in keeps the variance of activations the same in every layer under ReLU
        deviation, truncated = (2.0 / fan_in) ** 0.5, False
        if self.initializer == "lecun":  # σ² = 1 / fan-in, and the classifier's σ = 0.01, as in Renda et al. 2020
            deviation, truncated = (0.01, False) if kind == "dense" else (fan_in**-0.5, True)
        own = [Variable(f"{name}/kernel", kernel, "kernel", deviation=deviation, truncated=truncated)]
        own += [Variable(f"{name}/bias", output[2:], "other")] if bias else []
        self.variables += own
        self.layers.append(Layer(name, kind, kernel, output, sum(one.size for one in own)))
        return output


def _strided(x: Shape, stride: int) -> tuple[int, int]:
    return -(-x[0] // stride), -(-x[1] // stride)
