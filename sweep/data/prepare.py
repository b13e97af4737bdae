"""Packing images into shards: pure functions of the source, the seed and the options, shard by shard.

So any engine may make any shard at any time, and a preparation that was killed goes on with the shards that are missing
and ends with the same bytes. Images that cannot be used are listed in the shard's index; none is lost in silence.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sweep.data.prepared import MOST_SHARDS, Prepared
from sweep.data.shards import Written, write_shard
from sweep.data.sources import FORMATS, LARGEST, Listing, Source
from sweep.errors import Refused

if TYPE_CHECKING:
    from PIL.Image import Image

SHARD_BYTES = 150_000_000
JPEG_BYTES_PER_PIXEL = 0.35  # about, at quality 90


@dataclass(frozen=True)
class Options:
    """What decides the bytes of the shards, beside the images themselves."""

    format: str = "jpeg"  # or raw
    size: int = 256
    quality: int = 90
    seed: int = 0
    shard_bytes: int = SHARD_BYTES

    @property
    def per_shard(self) -> int:
        """Images in a shard; from the options alone, so that it does not depend on what the images are."""
        pixels = self.size * self.size
        each = 3 * pixels if self.format == "raw" else JPEG_BYTES_PER_PIXEL * pixels
        return max(1, int(self.shard_bytes / each))


def eight_bits(picture: Image) -> Image:
    """Return the upper 8 of 16 bits per pixel, as TensorFlow takes them; clipping would make the picture white."""
    if not picture.mode.startswith("I"):
        return picture
    from PIL import Image

    return Image.fromarray((np.asarray(picture).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))


def plan(found: Listing, root: Path, options: Options) -> Prepared:
    """The folder as it will be."""
    images = {split: len(sources) for split, sources in found.splits.items()}
    counts = {split: -(-count // options.per_shard) for split, count in images.items()}
    if max(counts.values()) > MOST_SHARDS:
        raise Refused(f"--shard-bytes: received {options.shard_bytes}, which makes {max(counts.values()):,} shards; "
                      f"expected at most {MOST_SHARDS:,}, so larger ones")  # fmt: skip
    return Prepared(root, options.format, options.size, found.classes, counts, images)


def make_shard(found: Listing, prepared: Prepared, options: Options, split: str, number: int) -> None:
    """Write one shard."""
    images = found.splits[split]
    # shuffled once: neighbours in a shard are then no neighbours in class
    order = np.random.Generator(np.random.Philox([options.seed, len(images)])).permutation(len(images))
    mine = order[number * options.per_shard : (number + 1) * options.per_shard]
    problems: list[list[str]] = []
    records = (_record(images[i], options, problems) for i in mine)
    write_shard(prepared, split, number, filter(None, records), problems)


def _record(source: Source, options: Options, problems: list[list[str]]) -> Written | None:
    """The image as it is kept. What is wrong with it goes on the list: `lost` where nothing could be made of it."""
    from PIL import Image

    content = source.content()  # a file that cannot be reached ends the work; it is not a broken picture
    if content is None:
        problems.append([source.name, f"lost: more than {LARGEST >> 20} MiB"])
        return None
    try:
        picture = Image.open(io.BytesIO(content))
        picture.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        said = re.sub(r" <.*>", "", " ".join(str(error).split()))  # an address in memory: other bytes every time
        problems.append([source.name, f"lost: {said}"])
        return None
    suffix = Path(source.name).suffix.lower()
    if picture.mode == "F" or (picture.format == "TIFF" and picture.mode == "I"):
        problems.append([source.name, f"lost: colours are {picture.mode}, expected 8 or 16 bits"])
        return None
    if picture.format != FORMATS[suffix]:
        problems.append([source.name, f"repaired: {picture.format} in a file named {suffix}"])
    if picture.mode not in ("RGB", "L"):
        problems.append([source.name, f"repaired: colours are {picture.mode}, kept as RGB"])
    width, height = picture.size
    small = min(width, height) <= options.size and picture.format == "JPEG" and picture.mode in ("RGB", "L")
    if options.format == "jpeg" and small:
        return Written(source.name, source.label, height, width, content)
    square = eight_bits(picture).convert("RGB")
    if square.size != (options.size, options.size):
        square = square.resize((options.size, options.size), Image.Resampling.LANCZOS)
    if options.format == "raw":
        return Written(source.name, source.label, height, width, square.tobytes())
    packed = io.BytesIO()
    square.save(packed, "JPEG", quality=options.quality)
    return Written(source.name, source.label, height, width, packed.getvalue())
