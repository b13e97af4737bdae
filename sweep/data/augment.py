"""Augmentation inside the compiled step: batches of uint8 in, batches of float out.

Random numbers are drawn for the whole batch from the step's seed and each replica takes its part, so that an image
is treated alike however many replicas share the batch.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

Tensor = Any


def normalised(images: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...], dtype: Any) -> Tensor:
    """Pixels 0…255 → zero mean, unit deviation per channel; without a mean, of each image by itself."""
    if not mean:
        return tf.cast(tf.image.per_image_standardization(images), dtype)
    scale = [1.0 / (255.0 * d) for d in deviation]
    shift = [-m / d for m, d in zip(mean, deviation, strict=True)]
    return tf.cast(tf.cast(images, tf.float32) * scale + shift, dtype)


def uniform(seed: Tensor, purpose: int, batch: int, share: tuple[Tensor, int], low: int, high: int) -> Tensor:
    """Whole numbers in [low, high) for this replica's images; `share` = (number of the replica, of replicas)."""
    drawn = tf.random.stateless_uniform((batch,), seed + [0, purpose], low, high, tf.int32, alg="philox")
    each = batch // share[1]
    return tf.slice(drawn, [share[0] * each], [each])


def cropped(images: Tensor, pad: int, tops: Tensor, lefts: Tensor) -> Tensor:
    """A window of the original size out of each image padded with `pad` black pixels on all sides."""
    height, width = images.shape[1], images.shape[2]
    images = tf.pad(images, [[0, 0], [pad, pad], [pad, pad], [0, 0]])
    rows = tops[:, None] + tf.range(height)
    columns = lefts[:, None] + tf.range(width)
    images = tf.gather(images, rows, axis=1, batch_dims=1)
    return tf.gather(images, columns, axis=2, batch_dims=1)


def flipped(images: Tensor, which: Tensor) -> Tensor:
    """Left and right exchanged where `which` is 1."""
    return tf.where(which[:, None, None, None] == 1, tf.reverse(images, [2]), images)


def neighbours(x: Tensor, groups: int) -> Tensor:
    """Return for each image the one before it in its group; for the first, the last of the group."""
    grouped = tf.reshape(x, (groups, -1, *x.shape[1:]))
    return tf.reshape(tf.roll(grouped, 1, 1), x.shape)


def mixed_up(images: Tensor, targets: Tensor, share: Tensor, groups: int = 1) -> tuple[Tensor, Tensor]:
    """Zhang et al. 2018: every image and its target blended with its neighbour's.

    λ x + (1 − λ) x', with one λ for the batch. Neighbours are of one group, which no replica shares with another.
    """
    own = tf.cast(share, images.dtype)
    images = own * images + (1 - own) * neighbours(images, groups)
    return images, share * targets + (1 - share) * neighbours(targets, groups)


def cut_mixed(images: Tensor, targets: Tensor, share: Tensor, seed: Tensor, groups: int = 1) -> tuple[Tensor, Tensor]:
    """Yun et al. 2019: a box of every image replaced by its neighbour's; targets by the area that was."""
    size = images.shape[1]
    side = tf.cast(tf.round(tf.sqrt(1.0 - share) * size), tf.int32)
    # whole numbers: XLA draws other fractions than TensorFlow from the same seed, but the same whole numbers
    corner = tf.random.stateless_uniform((2,), seed + [0, 4], 0, 1 << 16, tf.int32, alg="philox")
    top, left = (corner[i] * (size - side + 1) // (1 << 16) for i in (0, 1))
    at = tf.range(size)
    inside = ((at >= top) & (at < top + side))[:, None] & ((at >= left) & (at < left + side))[None, :]
    images = tf.where(inside[None, :, :, None], neighbours(images, groups), images)
    own = 1.0 - tf.cast(side * side, tf.float32) / (size * size)
    return images, own * targets + (1 - own) * neighbours(targets, groups)


def resized(images: Tensor, size: int) -> Tensor:
    """Bilinear, to a square of `size` pixels."""
    return images if images.shape[1] == size else tf.cast(tf.image.resize(images, (size, size)), images.dtype)


def resampled(images: Tensor, windows: Tensor, size: int) -> Tensor:
    """What the windows show (shares of height and width: top, left, height, width), at `size` pixels, float32.

    Bilinear where a window is enlarged, averaged over what falls into a pixel where it is reduced: two products with
    matrices of weights, one for rows and one for columns.
    """
    rows = _weights(windows[:, 0], windows[:, 2], images.shape[1], size)
    columns = _weights(windows[:, 1], windows[:, 3], images.shape[2], size)
    high = tf.einsum("bsh,bhwc->bswc", rows, tf.cast(images, tf.float32))
    return tf.einsum("btw,bswc->bstc", columns, high)


def _weights(begin: Tensor, extent: Tensor, pixels: int, size: int) -> Tensor:
    """How much each of `pixels` counts in each of `size` places along a window, `[batch, size, pixels]`."""
    share = (tf.range(size, dtype=tf.float32) + 0.5) / size
    centre = (begin[:, None] + extent[:, None] * share[None]) * pixels - 0.5
    reach = tf.maximum(extent * (pixels / size), 1.0)[:, None, None]
    distance = tf.abs(tf.range(pixels, dtype=tf.float32)[None, None] - centre[:, :, None])
    weight = tf.maximum(1.0 - distance / reach, 0.0)
    return weight / tf.reduce_sum(weight, 2, keepdims=True)
