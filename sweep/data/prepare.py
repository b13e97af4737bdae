"""From images as they come to shards: pure functions of the source, the seed and the options, shard by shard.

So any engine may make any shard at any time, and a preparation that was killed goes on with the shards that are missing
and ends with the same bytes. Images that cannot be used are listed in the shard's index; none is lost in silence.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sweep.data.shards import Prepared, Written, write_shard
from sweep.errors import Refused
from sweep.store import write_text

SHARD_BYTES = 150_000_000
JPEG_BYTES_PER_PIXEL = 0.35  # about, at quality 90
SOURCES = ".sources.json"
SUFFIXES = {".jpg", ".jpeg", ".png"}


@dataclass(frozen=True)
class Source:
    """One image where it lies: a file, or a part of a tar file."""

    name: str
    label: int
    path: Path
    offset: int = 0
    length: int = -1  # to the end


@dataclass(frozen=True)
class Listing:
    """Everything there is, in the order of its names."""

    classes: tuple[str, ...]
    splits: dict[str, list[Source]]


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


# What there is ------------------------------------------------------------------------------------------------------


def listing(source: Path) -> Listing:
    """Class folders under train/ and val/ (or test/), or tar files train.tar and val.tar with class folders or tars."""
    found = {}
    for split, names in (("train", ("train",)), ("test", ("val", "test"))):
        found[split] = next((made for name in names if (made := _split(source, name))), [])
        if not found[split]:
            raise Refused(
                f"{source}: no images under {' or '.join(f'{name}/CLASS/' for name in names)}; expected class folders, "
                f"or {' or '.join(f'{name}.tar' for name in names)} with class folders or a tar file per class"
            )
    classes = tuple(sorted({kind for kind, _ in found["train"]}))
    strange = sorted({kind for kind, _ in found["test"]} - set(classes))
    if strange:
        raise Refused(f"{source}: test images of the class {strange[0]!r}, which has no training images")
    number = {kind: label for label, kind in enumerate(classes)}
    return Listing(
        classes,
        {
            split: [
                Source(part.name, number[kind], part.path, part.offset, part.length)
                for kind, part in sorted(parts, key=lambda pair: pair[1].name)
            ]
            for split, parts in found.items()
        },
    )


def kept_listing(source: Path, dest: Path) -> Listing:
    """What was listed when the preparation began: a million files are asked for once, not by every machine again."""
    path = dest / SOURCES
    if path.exists():
        kept = json.loads(path.read_text())
        if kept["source"] != str(source.resolve()):
            raise Refused(f"{dest}: begun from {kept['source']}; expected the same source, or an empty folder")
        return Listing(
            tuple(kept["classes"]),
            {
                split: [Source(name, label, Path(at), offset, length) for name, label, at, offset, length in rows]
                for split, rows in kept["splits"].items()
            },
        )
    return listing(source)


def keep_listing(found: Listing, source: Path, dest: Path) -> None:
    """Until all shards are made."""
    rows = {
        split: [[s.name, s.label, str(s.path.resolve()), s.offset, s.length] for s in sources]
        for split, sources in found.splits.items()
    }
    write_text(dest / SOURCES, json.dumps({"source": str(source.resolve()), "classes": found.classes, "splits": rows}))


def _split(root: Path, name: str) -> list[tuple[str, Source]]:
    """The images of a split with the names of their classes."""
    folder = root / name
    if folder.is_dir():
        return [
            (kind.name, Source(f"{kind.name}/{path.name}", -1, path))
            for kind in sorted(folder.iterdir())
            if kind.is_dir()
            for path in kind.iterdir()
            if path.suffix.lower() in SUFFIXES
        ]
    # as ImageNet ships them, or as a user packs class folders
    for packed in (root / f"{name}.tar", root / f"ILSVRC2012_img_{name}.tar"):
        if packed.is_file():
            return list(_in_tar(packed))
    return []


def _in_tar(
    path: Path, base: int = 0, kind: str = "", file: io.BufferedReader | None = None
) -> Iterator[tuple[str, Source]]:
    """Images of class folders, or of one tar file per class, where they lie in the outer file."""
    with path.open("rb") as opened, tarfile.open(fileobj=_From(file or opened, base), mode="r:") as tar:
        for member in tar:
            name = Path(member.name)
            at = base + member.offset_data
            if member.isfile() and name.suffix == ".tar":
                yield from _in_tar(path, at, name.stem, file or opened)
            elif member.isfile() and name.suffix.lower() in SUFFIXES:
                own = kind or name.parent.name
                yield own, Source(f"{own}/{name.name}", -1, path, at, member.size)


class _From(io.RawIOBase):
    """A file from some place on, as if it began there."""

    def __init__(self, file: io.BufferedReader, base: int) -> None:
        self.file, self.base, self.at = file, base, 0

    def read(self, count: int = -1) -> bytes:
        self.file.seek(self.base + self.at)
        found = self.file.read(count)
        self.at += len(found)
        return found

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset if whence == 0 else self.at + offset
        return self.at

    def tell(self) -> int:
        return self.at


# One shard ----------------------------------------------------------------------------------------------------------


def plan(found: Listing, root: Path, options: Options) -> Prepared:
    """The folder as it will be."""
    counts = {split: -(-len(images) // options.per_shard) for split, images in found.splits.items()}
    return Prepared(root, options.format, options.size, found.classes, counts)


def make_shard(found: Listing, prepared: Prepared, options: Options, split: str, number: int) -> int:
    """Write one shard; how many images are in it."""
    images = found.splits[split]
    # shuffled once: neighbours in a shard are then no neighbours in class
    order = np.random.Generator(np.random.Philox([options.seed, len(images)])).permutation(len(images))
    mine = order[number * options.per_shard : (number + 1) * options.per_shard]
    problems: list[list[str]] = []
    count = 0

    def records() -> Iterator[Written]:
        nonlocal count
        for i in mine:
            made = _record(images[i], options, problems)
            if made:
                count += 1
                yield made

    write_shard(prepared, split, number, records(), problems)
    return count


def _record(source: Source, options: Options, problems: list[list[str]]) -> Written | None:
    """The image as it is kept. What is wrong with it goes on the list: `lost` where nothing could be made of it."""
    from PIL import Image

    try:
        content = _content(source)
        picture = Image.open(io.BytesIO(content))
        picture.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        problems.append([source.name, f"lost: {' '.join(str(error).split())}"])
        return None
    suffix = Path(source.name).suffix.lower()
    named = "PNG" if suffix == ".png" else "JPEG"
    if picture.format != named:
        problems.append([source.name, f"repaired: {picture.format} in a file named {suffix}"])
    if picture.mode not in ("RGB", "L"):
        problems.append([source.name, f"repaired: colours are {picture.mode}, kept as RGB"])
    width, height = picture.size
    small = min(width, height) <= options.size and picture.format == "JPEG" and picture.mode in ("RGB", "L")
    if options.format == "jpeg" and small:
        return Written(source.name, source.label, height, width, content)
    square = picture.convert("RGB")
    if square.size != (options.size, options.size):
        square = square.resize((options.size, options.size), Image.Resampling.LANCZOS)
    if options.format == "raw":
        return Written(source.name, source.label, height, width, square.tobytes())
    packed = io.BytesIO()
    square.save(packed, "JPEG", quality=options.quality)
    return Written(source.name, source.label, height, width, packed.getvalue())


def _content(source: Source) -> bytes:
    with source.path.open("rb") as file:
        file.seek(source.offset)
        return file.read(source.length)
