"""Windows (crops) of images as shares of height and width: `[images, (top, left, height, width)]`.

They are drawn with numpy from a step's seed for the whole batch: the same on every machine, for any number of replicas.
"""

from __future__ import annotations

import math

import numpy as np

AREA = (0.08, 1.0)  # share of the image's area in a random resized crop, as in most ImageNet recipes
SHAPE = (3 / 4, 4 / 3)  # aspect ratios, width / height
MARGIN = 0.875  # side of a test crop, as a share of the image's shorter side
TRIES = 10


def random_windows(seed: np.ndarray, heights: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Return a window of random area and aspect ratio per image; if TRIES draws do not fit, the central square."""
    stream = np.random.Generator(np.random.Philox(key=seed.astype(np.uint64)))
    count = len(heights)
    area = stream.uniform(*AREA, (TRIES, count)) * (heights * widths)
    shape = np.exp(stream.uniform(math.log(SHAPE[0]), math.log(SHAPE[1]), (TRIES, count)))
    place = stream.random((2, count))
    high, wide = np.sqrt(area / shape) / heights, np.sqrt(area * shape) / widths
    fits = (high <= 1) & (wide <= 1)
    first, any_fits = fits.argmax(0), fits.any(0)
    shorter = np.minimum(heights, widths)
    each = np.arange(count)
    high = np.where(any_fits, high[first, each], shorter / heights)
    wide = np.where(any_fits, wide[first, each], shorter / widths)
    place = np.where(any_fits, place, 0.5)
    return np.stack([place[0] * (1 - high), place[1] * (1 - wide), high, wide], 1).astype(np.float32)


def central_windows(heights: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Return the central square of each image, MARGIN × its shorter side."""
    side = MARGIN * np.minimum(heights, widths)
    high, wide = side / heights, side / widths
    return np.stack([(1 - high) / 2, (1 - wide) / 2, high, wide], 1).astype(np.float32)
