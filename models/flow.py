"""A network without its nonlinearities: activations and batch norm are the identity, biases are 0.

What SynFlow measures (Tanaka et al. 2020): with all weights made positive, the outputs for an image of ones are the sum
over all paths of the product of their weights. ReLU6 would cut these sums off, batch norm would level them, and over
the fifty layers of MobileNetV2 they leave float32's range; so neither is there, and the numbers are float64.
"""

from __future__ import annotations

from models.layers import Compute, Tensor
from models.outline import Activation


class Flow(Compute):
    """The verbs of a network without norms and activations, computed in the type of the batch."""

    def norm(self, name: str, x: Tensor, epsilon: float, activation: Activation = "") -> Tensor:
        return x

    def biased(self, name: str, x: Tensor) -> Tensor:
        return x

    def relu(self, x: Tensor) -> Tensor:
        return x

    def dense(self, name: str, x: Tensor, units: int) -> Tensor:
        return x @ self.weights[f"{name}/kernel"]

    def pool(self, x: Tensor) -> Tensor:
        import tensorflow as tf

        return tf.reduce_mean(x, (1, 2))
