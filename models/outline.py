"""The description of a network, made without TensorFlow: variables, shapes, multiply-adds.

An architecture is one function written against the verbs of `Outline` (convolution, depthwise, norm, …). Run with an
`Outline` it yields this description; run with `models.layers.Compute` it yields logits. So the counts in a plan or a
report cannot differ from what is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
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
        count = 1
        for n in self.shape:
            count *= n
        return count


@dataclass(frozen=True)
class Layer:
    """One layer with a kernel: its shapes, parameters, and multiply-adds per image, with groups taken into account.

    The kernel of a `blur` is fixed: it has multiply-adds and no parameters.
    """

    name: str
    kind: Kind
    kernel: tuple[int, ...]
    output: tuple[int, ...]
    macs: int
    parameters: int


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
        height, width, channels = x
        out = (-(-height // stride), -(-width // stride), filters)
        kernel = (size, size, channels, filters)
        self._kernel(name, kernel, fan_in=size * size * channels)
        if bias:
            self.variables.append(Variable(f"{name}/bias", (filters,), "other"))
        self._cost(name, "convolution", kernel, out, size * size * channels, filters if bias else 0)
        return out

    def max_pool(self, x: Shape, size: int, stride: int) -> Shape:
        return (-(-x[0] // stride), -(-x[1] // stride), x[2])

    def depthwise(self, name: str, x: Shape, size: int, stride: int = 1) -> Shape:
        height, width, channels = x
        out = (-(-height // stride), -(-width // stride), channels)
        self._kernel(name, (size, size, channels, 1), fan_in=size * size)
        self._cost(name, "depthwise", (size, size, channels, 1), out, per_output=size * size)
        return out

    def channels(self, x: Shape) -> int:
        return x[2]

    def blur(self, name: str, x: Shape) -> Shape:
        height, width, channels = x
        self.layers.append(Layer(name, "blur", (3, 3, channels, 1), x, height * width * channels * 9, parameters=0))
        return x

    def dense(self, name: str, x: Shape, units: int) -> Shape:
        channels = x[2]
        self._kernel(name, (channels, units), fan_in=channels, classifier=True)
        self.variables.append(Variable(f"{name}/bias", (units,), "other"))
        self._cost(name, "dense", (channels, units), (1, 1, units), per_output=channels, bias=units)
        return (1, 1, units)

    def norm(self, name: str, x: Shape, epsilon: float, activation: Activation = "") -> Shape:
        for part, role, start in (
            ("gamma", "other", 1.0),
            ("beta", "other", 0.0),
            ("moving_mean", "statistic", 0.0),
            ("moving_variance", "statistic", 1.0),
        ):
            self.variables.append(Variable(f"{name}/{part}", (x[2],), role, start))  # type: ignore[arg-type]
        return x

    def relu(self, x: Shape) -> Shape:
        return x

    def add(self, x: Shape, y: Shape) -> Shape:
        if x != y:
            raise ValueError(f"cannot add {x} and {y}")
        return x

    def pool(self, x: Shape) -> Shape:
        return (1, 1, x[2])

    def _kernel(self, name: str, shape: tuple[int, ...], fan_in: int, classifier: bool = False) -> None:
        # He et al. 2015: σ² = 2 / fan-in keeps the variance of activations the same in every layer under ReLU
        deviation, truncated = (2.0 / fan_in) ** 0.5, False
        if self.initializer == "lecun":  # σ² = 1 / fan-in, and the classifier's σ = 0.01, as in Renda et al. 2020
            deviation, truncated = (0.01, False) if classifier else (fan_in**-0.5, True)
        self.variables.append(Variable(f"{name}/kernel", shape, "kernel", deviation=deviation, truncated=truncated))

    def _cost(
        self,
        name: str,
        kind: Kind,
        kernel: tuple[int, ...],
        output: Shape,
        per_output: int,
        bias: int = 0,
    ) -> None:
        macs = output[0] * output[1] * output[2] * per_output
        parameters = Variable(name, kernel, "kernel").size + bias
        self.layers.append(Layer(name, kind, kernel, output, macs, parameters))
