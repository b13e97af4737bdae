"""Augmentation inside the compiled step: batches `[images, height, width, channels]`, uint8 in, float out.

Random numbers are drawn for the whole batch from the step's seed and each replica takes its part, so that an image is
augmented in the same way however many replicas share the batch.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

Tensor = Any


def normalised(images: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...], dtype: Any) -> Tensor:
    """Return pixels 0…255 as (x / 255 − mean) / deviation per channel, in type `dtype`.

    Without a mean, each image is standardised by itself: (x − its mean) / max(its deviation, 1/√n) of its n numbers.
    """
    if not mean:
        return tf.cast(tf.image.per_image_standardization(images), dtype)
    scale = [1.0 / (255.0 * d) for d in deviation]
    shift = [-m / d for m, d in zip(mean, deviation, strict=True)]
    return tf.cast(tf.cast(images, tf.float32) * scale + shift, dtype)


def uniform(seed: Tensor, purpose: int, batch: int, share: tuple[Tensor, int], low: int, high: int) -> Tensor:
    """Return random integers in [low, high) for this replica's images; `share` = (index, number of replicas)."""
    drawn = tf.random.stateless_uniform((batch,), seed + [0, purpose], low, high, tf.int32, alg="philox")
    each = batch // share[1]
    return tf.slice(drawn, [share[0] * each], [each])


def cropped(images: Tensor, pad: int, tops: Tensor, lefts: Tensor) -> Tensor:
    """Return a window of the original size of each image after padding it with `pad` black pixels on all sides."""
    height, width = images.shape[1], images.shape[2]
    images = tf.pad(images, [[0, 0], [pad, pad], [pad, pad], [0, 0]])
    rows = tops[:, None] + tf.range(height)
    columns = lefts[:, None] + tf.range(width)
    images = tf.gather(images, rows, axis=1, batch_dims=1)
    return tf.gather(images, columns, axis=2, batch_dims=1)


def flipped(images: Tensor, which: Tensor) -> Tensor:
    """Return the images, mirrored left to right where `which` is 1."""
    return tf.where(which[:, None, None, None] == 1, tf.reverse(images, [2]), images)


def neighbours(x: Tensor, groups: int) -> Tensor:
    """Return, for each image, the one before it in its group; for the first, the last of the group."""
    grouped = tf.reshape(x, (groups, -1, *x.shape[1:]))
    return tf.reshape(tf.roll(grouped, 1, 1), x.shape)


def mixed_up(images: Tensor, targets: Tensor, share: Tensor, groups: int = 1) -> tuple[Tensor, Tensor]:
    """Return images and targets after mixup (Zhang et al. 2018): λ x + (1 − λ) x', λ = `share`, x' the neighbour."""
    own = tf.cast(share, images.dtype)
    images = own * images + (1 - own) * neighbours(images, groups)
    return images, share * targets + (1 - share) * neighbours(targets, groups)


def cut_mixed(images: Tensor, targets: Tensor, share: Tensor, seed: Tensor, groups: int = 1) -> tuple[Tensor, Tensor]:
    """Return images with a box from their neighbours, and targets mixed by its area: CutMix (Yun et al. 2019)."""
    size = images.shape[1]
    side = tf.cast(tf.round(tf.sqrt(1.0 - share) * size), tf.int32)
    # integers: from one seed XLA and TensorFlow draw the same integers, but different floats
    corner = tf.random.stateless_uniform((2,), seed + [0, 4], 0, 1 << 16, tf.int32, alg="philox")
    top, left = (corner[i] * (size - side + 1) // (1 << 16) for i in (0, 1))
    at = tf.range(size)
    inside = ((at >= top) & (at < top + side))[:, None] & ((at >= left) & (at < left + side))[None, :]
    images = tf.where(inside[None, :, :, None], neighbours(images, groups), images)
    own = 1.0 - tf.cast(side * side, tf.float32) / (size * size)
    return images, own * targets + (1 - own) * neighbours(targets, groups)


def erased(
    images: Tensor, probability: float, chance: Tensor, area: Tensor, shape: Tensor, top: Tensor, left: Tensor
) -> Tensor:
    """Return images, some with a rectangle of zeros: random erasing (Zhong et al. 2020), all numbers `[n]` in [0, 1).

    Images with `chance` < `probability` lose the share 0.02 + 0.31 · area; height / width is 0.3^(1 − 2 · shape).
    """
    size = images.shape[1]
    share, ratio = 0.02 + 0.31 * area, tf.pow(0.3, 1 - 2 * shape)
    height, width = (tf.minimum(tf.round(size * tf.sqrt(side)), size) for side in (share * ratio, share / ratio))
    begin = [tf.floor(at * (size - side + 1))[:, None] for at, side in ((top, height), (left, width))]
    at = tf.range(size, dtype=tf.float32)[None]
    rows, columns = ((at >= b) & (at < b + side[:, None]) for b, side in zip(begin, (height, width), strict=True))
    inside = rows[:, :, None] & columns[:, None, :] & (chance < probability)[:, None, None]
    return tf.where(inside[..., None], tf.zeros_like(images), images)


def resized(images: Tensor, size: int) -> Tensor:
    """Return images resized bilinearly to `size` × `size` pixels."""
    return images if images.shape[1] == size else tf.cast(tf.image.resize(images, (size, size)), images.dtype)


def resampled(images: Tensor, windows: Tensor, size: int) -> Tensor:
    """Return windows `[n, (top, left, height, width)]`, in [0, 1], of images, as float32 `[n, size, size, channels]`.

    Enlarging is bilinear; reducing averages with a triangle filter. Both are two matrix products, for rows and columns.
    """
    rows = _weights(windows[:, 0], windows[:, 2], images.shape[1], size)
    columns = _weights(windows[:, 1], windows[:, 3], images.shape[2], size)
    high = tf.einsum("bsh,bhwc->bswc", rows, tf.cast(images, tf.float32))
    return tf.einsum("btw,bswc->bstc", columns, high)


def _weights(begin: Tensor, extent: Tensor, pixels: int, size: int) -> Tensor:
    """Return the share `[batch, size, pixels]` of each input pixel in each output pixel along one axis of a window."""
    share = (tf.range(size, dtype=tf.float32) + 0.5) / size
    centre = (begin[:, None] + extent[:, None] * share[None]) * pixels - 0.5
    reach = tf.maximum(extent * (pixels / size), 1.0)[:, None, None]
    distance = tf.abs(tf.range(pixels, dtype=tf.float32)[None, None] - centre[:, :, None])
    weight = tf.maximum(1.0 - distance / reach, 0.0)
    return weight / tf.reduce_sum(weight, 2, keepdims=True)
