"""The decoder of jpeg shards has Pillow's pixels: trainings on record were made with them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from sweep.data.shards import decode
from tests.data.shards.conftest import SIZE, picture


def pillow(content: bytes) -> np.ndarray:
    opened = Image.open(io.BytesIO(content)).convert("RGB")
    return np.asarray(opened if opened.size == (SIZE, SIZE) else opened.resize((SIZE, SIZE), Image.Resampling.BILINEAR))


def encoded(made: Image.Image, **options: Any) -> bytes:
    made.save(file := io.BytesIO(), "JPEG", **options)
    return file.getvalue()


def decoded(content: bytes) -> np.ndarray:
    decode(content, out := np.full((SIZE, SIZE, 3), 77, np.uint8))
    return out


@pytest.mark.parametrize("shape", [(SIZE, SIZE), (SIZE, 51), (29, 31), (SIZE, 20), (1, 1)])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0", "4:1:1", "grey"])
def test_every_kind_of_record_is_decoded_to_pillows_pixels(shape, subsampling):
    for seed, progressive in enumerate((False, True)):
        made = picture(seed).resize(shape)
        kind = {} if subsampling == "grey" else {"subsampling": subsampling}
        content = encoded(made if kind else made.convert("L"), quality=60 + 30 * seed, progressive=progressive, **kind)
        np.testing.assert_array_equal(decoded(content), pillow(content))


def test_a_record_with_a_flaw_that_pillow_forgives_is_read_all_the_same():
    content = encoded(picture(1).resize((SIZE, SIZE)))
    flawed = content[:-2] + bytes(30) + content[-2:]
    with pytest.raises(ValueError, match="extraneous bytes"):
        simplejpeg.decode_jpeg(flawed)
    np.testing.assert_array_equal(decoded(flawed), decoded(content))


@pytest.mark.parametrize("content", [b"", b"no picture" * 20, encoded(picture(1))[:400]])
def test_a_record_that_is_no_picture_is_refused(content):
    with pytest.raises((OSError, SyntaxError)):
        decoded(content)
