"""The decoders of jpeg shards have Pillow's pixels: trainings on record were made with them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from sweep.data.decoded import Decoded
from sweep.data.jpeg import decode, decode_many
from sweep.data.prepared import Prepared, describe
from sweep.data.shards import THREADS, Reader, Written, records_of, write_shard
from sweep.errors import Refused
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


SHAPES = [(SIZE, SIZE), (SIZE, 51), (29, 31), (SIZE, 20), (1, 1)]
KINDS = ["4:4:4", "4:2:2", "4:2:0", "4:1:1", "grey"]


def records(shape: tuple[int, int], subsampling: str) -> Iterator[bytes]:
    for seed, progressive in enumerate((False, True)):
        made = picture(seed).resize(shape)
        kind = {} if subsampling == "grey" else {"subsampling": subsampling}
        yield encoded(made if kind else made.convert("L"), quality=60 + 30 * seed, progressive=progressive, **kind)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("subsampling", KINDS)
def test_every_kind_of_record_is_decoded_to_pillows_pixels(shape, subsampling):
    for content in records(shape, subsampling):
        np.testing.assert_array_equal(decoded(content), pillow(content))


@pytest.mark.tensorflow
def test_records_of_every_kind_are_decoded_together_to_pillows_pixels():
    contents = [content for shape in SHAPES for kind in KINDS for content in records(shape, kind)]
    found = decode_many(contents, SIZE)
    assert [*found] == [0, 2, 4, 6, 8]  # progressive ones and those of another size are decoded one by one
    for i, pixels in found.items():
        np.testing.assert_array_equal(pixels, pillow(contents[i]))


@pytest.mark.tensorflow
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("cores", [2, 16])
def test_a_batch_with_records_of_every_kind_is_read_and_a_damaged_one_is_named(cores, cached, tmp_path, monkeypatch):
    """Small pictures, and such as TensorFlow cannot decode or decodes otherwise than Pillow, among usual ones."""
    monkeypatch.setattr("sweep.data.shards.CORES", cores)
    whole, bitmap = encoded(picture(1).resize((SIZE, SIZE))), io.BytesIO()
    picture(2).resize((SIZE, SIZE)).save(bitmap, "BMP")
    *_, progressive = records((SIZE, SIZE), "4:2:0")
    second = progressive.index(b"\xff\xda", progressive.index(b"\xff\xda") + 1)
    unfinished = progressive[:second] + progressive[-2:]  # without later scans
    contents = [
        whole,
        *records((29, 31), "4:2:0"),
        unfinished,
        whole[:-2] + bytes(30) + whole[-2:],
        bitmap.getvalue(),
        whole,
    ]
    prepared = Prepared(tmp_path, "jpeg", SIZE, ("a",), {"train": 1, "test": 1})
    describe(prepared, {})
    for split, some in (("train", contents), ("test", [*contents[:2], whole[:400]])):
        written = [Written(str(i), 0, 9, 9, one) for i, one in enumerate(some)]
        write_shard(prepared, split, 0, written, [])
    prepared = replace(prepared, images={"train": len(contents), "test": 3})
    good, broken = records_of(prepared, "train"), records_of(prepared, "test")
    reader = Decoded(good, tmp_path / "node") if cached else Reader(good)
    rows, out = np.arange(len(contents))[::-1], np.zeros((len(contents), SIZE, SIZE, 3), np.uint8)
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(2):
            out[:] = 0
            reader.squares(rows, out, pool, gpu=True)
            np.testing.assert_array_equal(out[::-1], [pillow(one) for one in contents])
        place = f"test-00000.jpeg: image at byte {broken.records['offset'][2]}: "
        with pytest.raises(Refused, match=f"{place}.*lottery data inspect --verify finds what else changed"):
            Reader(broken).squares(np.arange(3), out[:3], pool, gpu=True)


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
