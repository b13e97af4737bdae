"""TrivialAugment and RandAugment inside the compiled step: one operation on each image, drawn from a table.

A row of the table is one operation at one strength and sign, in three parts: the output of every pixel value, a blend
with another image, and the place that every pixel is taken from. Parts that an operation does not use change nothing,
so a batch goes through all three without a branch. All arithmetic is of whole numbers: XLA and TensorFlow give the same
images. Operations are Pillow's, strengths those published.
"""

from __future__ import annotations

from fractions import Fraction
from math import cos, radians, sin
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

Tensor = Any
OPERATIONS = (
    "identity", "autocontrast", "equalize", "posterize", "solarize", "brightness", "contrast", "colour", "sharpness",
    "shear_x", "shear_y", "translate_x", "translate_y", "rotate",
)  # fmt: skip
WHOLE = 20  # bits after the point of a factor; of a place 16, as in Pillow


class Space(NamedTuple):
    """The greatest strengths of a policy."""

    shear: float  # pixels per pixel
    translate: Fraction  # pixels
    rotate: int  # degrees
    posterize: int  # bits taken away
    blend: float  # distance of the factor from 1


class Table(NamedTuple):
    """Rows that are drawn with equal chance."""

    operation: np.ndarray  # [rows], positions in OPERATIONS
    values: np.ndarray  # [rows, 256] uint8, output of every pixel value
    factor: np.ndarray  # [rows], share of the image in the blend, times 2^20
    places: np.ndarray  # [rows, 2, 3], (a, b, c): x, then y, of the source is a x + b y + c, times 2^16


def table(policy: str, magnitude: int, size: int) -> Table:
    """Return the rows of a policy for images of `size` × `size` pixels.

    trivial: the wide space of Müller and Hutter 2021, strengths 0 to 30 of 30. rand: the operations of Cubuk et al.
    2020 in the space of AutoAugment, at strength `magnitude` of 10.
    """
    if policy == "trivial":
        space, strengths = Space(0.99, Fraction(32), 135, 6, 0.99), [Fraction(level, 30) for level in range(31)]
    else:
        space, strengths = Space(0.3, Fraction(150 * size, 331), 30, 4, 0.9), [Fraction(magnitude, 10)]
    rows = [
        (operation, *_row(name, strength, sign, space, size))
        for operation, name in enumerate(OPERATIONS) for strength in strengths for sign in (1, -1)
    ]  # fmt: skip
    parts = [np.array(part) for part in zip(*rows, strict=True)]
    return Table(*(part.astype(kind) for part, kind in zip(parts, ("i4", "u1", "i4", "i4"), strict=True)))


def _row(name: str, strength: Fraction, sign: int, space: Space, size: int) -> tuple[Any, int, Any]:
    """Return output values, factor and places of one operation."""
    values, factor = np.arange(256), 1.0
    places = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    if name == "posterize":
        values &= -1 << int(space.posterize * strength)
    elif name == "solarize":
        values = np.where(values < 256 - int(256 * strength), values, 255 - values)
    elif name in ("brightness", "contrast", "colour", "sharpness"):
        factor += sign * space.blend * float(strength)
    elif name in ("shear_x", "shear_y"):
        axis = "xy".index(name[-1])
        places[axis, 1 - axis] = sign * space.shear * float(strength)
    elif name in ("translate_x", "translate_y"):
        places["xy".index(name[-1]), 2] = sign * int(space.translate * strength)
    elif name == "rotate":
        turn, centre = radians(sign * int(space.rotate * strength)), np.full(2, size / 2)
        places[:, :2] = np.round([[cos(turn), -sin(turn)], [sin(turn), cos(turn)]], 15)
        places[:, 2] = centre - places[:, :2] @ centre
    places[:, 2] += places[:, :2].sum(1) / 2  # from the middle of a pixel
    return values, round(factor * 2**WHOLE), np.floor(places * 2**16 + 0.5)


def augmented(images: Tensor, rows: Tensor, of: Table) -> Tensor:
    """Return each image after the operation of its row `[images]` of the table; pixels are rounded to whole ones."""
    operation, values, factor, places = (tf.gather(part, rows) for part in of)
    operation = operation[:, None, None, None]
    pixels = tf.cast(tf.round(images), tf.uint8)
    values = _values(pixels, operation, values)  # of pixels as they come: no image has a blend and other values too
    blend = _blended(pixels, operation, factor[:, None, None, None])
    taken = tf.gather(tf.reshape(values, [-1]), _slots(blend))
    return tf.cast(_moved(taken, places), images.dtype)


def _is(operation: Tensor, name: str) -> Tensor:
    return operation == OPERATIONS.index(name)


def _slots(pixels: Tensor, of: Tensor = True) -> Tensor:
    """Return (image · channels + channel) · 256 + value of each pixel; less than 0 for images that are not `of`."""
    count, channels = pixels.shape[0], pixels.shape[3]
    channel = tf.reshape(tf.range(count * channels), (count, 1, 1, channels))
    return tf.where(of, channel, -1) * 256 + tf.cast(pixels, tf.int32)


def _values(pixels: Tensor, operation: Tensor, values: Tensor) -> Tensor:
    """Return the output of every pixel value `[images, channels, 256]`, from that of the table `[images, 256]`.

    Two operations look at the image: autocontrast stretches the values of a channel to 0…255, equalize gives each
    value the share of pixels below it.
    """
    count, channels, every = pixels.shape[0], pixels.shape[3], tf.range(256)
    low, high = (tf.cast(end(pixels, (1, 2)), tf.int32)[..., None] for end in (tf.reduce_min, tf.reduce_max))
    stretched = tf.clip_by_value((every - low) * 255 // tf.maximum(high - low, 1), 0, 255)
    # counted are only the pixels of images that need it
    counted = _slots(pixels, _is(operation, "equalize"))
    counts = tf.math.unsorted_segment_sum(tf.ones_like(counted), counted, count * channels * 256)
    below = tf.cumsum(tf.reshape(counts, (count, channels, 256)), 2, exclusive=True)
    step = tf.reduce_sum(tf.where(every == high, below, 0), 2, keepdims=True) // 255
    spread = tf.minimum((step // 2 + below) // tf.maximum(step, 1), 255)
    own = tf.cast(values, tf.int32)[:, None]
    own = tf.where(_is(operation[:, 0], "autocontrast") & (high > low), stretched, own)
    own = tf.where(_is(operation[:, 0], "equalize") & (step > 0), spread, own)
    return tf.cast(own, tf.uint8)


def _blended(pixels: Tensor, operation: Tensor, factor: Tensor) -> Tensor:
    """Return base + factor · (image − base), base being black, the mean grey, the grey image or the smoothed one."""
    own = tf.cast(pixels, tf.int32)
    height, width, channels = own.shape[1:]
    grey = own
    if channels == 3:
        parts = zip(tf.split(own, 3, 3), (19595, 38470, 7471), strict=True)
        grey = _shifted(sum(part * weight for part, weight in parts) + 2**15, 16)
    total = tf.reduce_sum(tf.cast(tf.reduce_sum(grey, 2, keepdims=True), tf.int64), 1, keepdims=True)
    mean = tf.cast((2 * total + height * width) // (2 * height * width), tf.int32)
    around = tf.pad(own, [[0, 0], [1, 1], [1, 1], [0, 0]])
    around = around[:, :-2] + around[:, 1:-1] + around[:, 2:]
    around = around[:, :, :-2] + around[:, :, 1:-1] + around[:, :, 2:]
    smoothed = (2 * (around + 4 * own) + 13) // 26  # the eight around weigh 1 of 13, itself 5; at the edges it stays
    smoothed = own + (smoothed - own) * np.pad(np.ones((height - 2, width - 2, 1), np.int32), ((1, 1), (1, 1), (0, 0)))
    others = {"contrast": mean, "colour": grey, "sharpness": smoothed}
    base = sum(tf.cast(_is(operation, name), tf.int32) * other for name, other in others.items())
    # 2^7: a whole number is not missed because its factor was rounded
    blend = _shifted(base * 2**WHOLE + factor * (own - base) + 2**7, WHOLE)
    return tf.cast(tf.clip_by_value(blend, 0, 255), tf.uint8)


def _moved(pixels: Tensor, places: Tensor) -> Tensor:
    """Return the image whose pixels are taken from `places` `[images, 2, 3]`, black where they are outside of it."""
    count, height, width, channels = pixels.shape
    across, down = tf.range(width), tf.range(height)[:, None]
    x, y = (
        _shifted(across * axis[:, 0, None, None] + down * axis[:, 1, None, None] + axis[:, 2, None, None], 16)
        for axis in tf.unstack(places, axis=1)
    )
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    at = (tf.range(count)[:, None, None] * height + y) * width + x
    taken = tf.gather(tf.reshape(pixels, (-1, channels)), tf.where(inside, at, 0))
    return taken * tf.cast(inside, tf.uint8)[..., None]


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Return x / 2^bits rounded down."""
    return tf.bitwise.right_shift(x, tf.constant(bits, x.dtype))
