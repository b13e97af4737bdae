"""The packing of images into shards: each shard is a pure function of the source and the options.

So any process may make any shard at any time, and a preparation that was killed continues with the missing shards and
ends with the same bytes. Images that cannot be used are listed in the shard's index.
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
JPEG_BYTES_PER_PIXEL = 0.35  # approximate, at quality 90


@dataclass(frozen=True)
class Options:
    """The options that decide the bytes of the shards, together with the images."""

    format: str = "jpeg"  # or raw
    size: int = 256
    quality: int = 90
    seed: int = 0
    shard_bytes: int = SHARD_BYTES

    @property
    def per_shard(self) -> int:
        """Return the number of images in a shard, estimated from the options alone."""
        pixels = self.size * self.size
        each = 3 * pixels if self.format == "raw" else JPEG_BYTES_PER_PIXEL * pixels
        return max(1, int(self.shard_bytes / each))


def eight_bits(picture: Image) -> Image:
    """Return a 16-bit picture as its upper 8 bits, as TensorFlow reads it; clipping would make it white."""
    if not picture.mode.startswith("I"):
        return picture
    from PIL import Image

    return Image.fromarray((np.asarray(picture).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))


def plan(found: Listing, root: Path, options: Options) -> Prepared:
    """Return the description of the folder to be made; raise Refused if it would have too many shards."""
    images = {split: len(sources) for split, sources in found.splits.items()}
    counts = {split: -(-count // options.per_shard) for split, count in images.items()}
    if max(counts.values()) > MOST_SHARDS:
        raise Refused(f"--shard-bytes: received {options.shard_bytes}, which makes {max(counts.values()):,} shards; "
                      f"expected at most {MOST_SHARDS:,}, so larger ones")  # fmt: skip
    return Prepared(root, options.format, options.size, found.classes, counts, images)


def make_shard(found: Listing, prepared: Prepared, options: Options, split: str, number: int) -> None:
    """Write one shard with its index."""
    images = found.splits[split]
    # shuffled once, so that images next to each other in a shard are of different classes
    order = np.random.Generator(np.random.Philox([options.seed, len(images)])).permutation(len(images))
    mine = order[number * options.per_shard : (number + 1) * options.per_shard]
    problems: list[list[str]] = []
    records = (_record(images[i], options, problems) for i in mine)
    write_shard(prepared, split, number, filter(None, records), problems)


def _record(source: Source, options: Options, problems: list[list[str]]) -> Written | None:
    """Return the record of an image, or None if it cannot be read; what is wrong is added to `problems`."""
    from PIL import Image

    content = source.content()  # an OSError here ends the work: the disk is at fault, not the picture
    if content is None:
        problems.append([source.name, f"lost: more than {LARGEST >> 20} MiB"])
        return None
    try:
        picture = Image.open(io.BytesIO(content))
        picture.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        said = re.sub(r" <.*>", "", " ".join(str(error).split()))  # no object's address: it differs every time
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
