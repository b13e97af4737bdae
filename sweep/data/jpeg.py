"""Decoding of JPEG pictures: one in Python, or many at once in TensorFlow's threads.

Both give Pillow's pixels, bit for bit, of what `lottery data prepare` writes. TensorFlow takes 1.5 times the CPU time.
But Python's threads wait for each other's lock: on 16 cores 16 of them decode 8,249 pictures of 256 px a second, 8 of
them 11,696, TensorFlow's threads 16,151 (docs/data.md).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

START, PROGRESSIVE = b"\xff\xd8", b"\xff\xc2"  # markers; the latter is in no compressed pixels
AT_ONCE = 256  # pictures that are decoded in parallel, if there are so many cores


def decode(content: bytes, out: np.ndarray) -> None:
    """Write the pixels of an encoded RGB or grey picture, resized to the shape of `out`, `[size, size, 3]` uint8.

    simplejpeg takes 0.7 of Pillow's time; pictures with a flaw are left to Pillow.
    """
    import simplejpeg
    from PIL import Image

    size = out.shape[:2]
    try:
        if simplejpeg.decode_jpeg_header(content)[:2] == size:
            simplejpeg.decode_jpeg(content, buffer=out)
            return
        picture = Image.fromarray(simplejpeg.decode_jpeg(content))
    except ValueError:
        picture = Image.open(io.BytesIO(content)).convert("RGB")
    if picture.size != size:  # small originals are stored unchanged
        picture = picture.resize(size, Image.Resampling.BILINEAR)
    out[...] = np.asarray(picture)


def decode_many(contents: Sequence[bytes], size: int) -> dict[int, np.ndarray]:
    """Return the pixels `[size, size, 3]` of plain pictures of this size, by their place; others are for `decode`.

    Of a progressive picture whose last scans are missing, TensorFlow makes other pixels.
    """
    import tensorflow as tf

    plain = [i for i, one in enumerate(contents) if one.startswith(START) and PROGRESSIVE not in one]
    try:
        pixels, fitting = _together(size)(tf.constant([contents[i] for i in plain], tf.string))
    except tf.errors.InvalidArgumentError:  # a damaged one; TensorFlow does not say which
        return {}
    return {i: own for i, own, fits in zip(plain, pixels.numpy(), fitting.numpy(), strict=True) if fits}


@cache
def _together(size: int) -> Any:
    import tensorflow as tf

    def one(content: Any) -> tuple[Any, Any]:
        # the accurate transform: with the fast one the pixels are other ones
        picture = tf.io.decode_jpeg(content, channels=3, dct_method="INTEGER_ACCURATE")
        whole, shape = tf.reduce_all(tf.shape(picture)[:2] == size), (size, size, 3)
        fitting = tf.cond(whole, lambda: picture, lambda: tf.zeros(shape, tf.uint8))
        return tf.ensure_shape(fitting, shape), whole

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
    def together(contents: Any) -> tuple[Any, Any]:
        signature = tf.TensorSpec([size, size, 3], tf.uint8), tf.TensorSpec([], tf.bool)
        with tf.device("CPU"):
            return tf.map_fn(one, contents, fn_output_signature=signature, parallel_iterations=AT_ONCE)

    return together
