"""The images at their source: the place of each one, its name and its class.

Sources are class folders, class folders in tar files, ImageNet as distributed (a tar file of tar files for training, a
flat one with the devkit's ground truth for validation), and CIFAR-10's archives. Tar files are not unpacked.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sweep.data.prepared import SPLITS
from sweep.errors import Refused
from sweep.files import read_json, write_text

KEPT = ".sources.json"
FORMATS = {
    ".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".gif": "GIF", ".tif": "TIFF", ".tiff": "TIFF", ".webp": "WEBP",
    ".bmp": "BMP",
}  # fmt: skip
LARGEST = 1 << 28  # most bytes that one image may have at its source
DEVKIT = "ILSVRC2012_devkit_t12"


@dataclass(frozen=True)
class Source:
    """One image at its source: a file, a part of a tar file, or bytes in memory."""

    name: str
    label: int
    path: Path = Path()
    offset: int = 0
    length: int = -1  # -1: to the end of the file
    held: bytes | None = None

    def content(self) -> bytes | None:
        """Return the bytes of the image, or None if they are more than LARGEST."""
        if self.held is not None:
            return self.held
        with self.path.open("rb") as file:
            length = self.length if self.length >= 0 else os.fstat(file.fileno()).st_size
            file.seek(self.offset)
            return file.read(length) if length <= LARGEST else None


@dataclass(frozen=True)
class Listing:
    """All images of a source, by split and sorted by name."""

    classes: tuple[str, ...]
    splits: dict[str, list[Source]]
    left_out: tuple[str, ...] = ()  # files that are not read: no images, or not directly in a class folder


def listing(source: Path) -> Listing:
    """Return the images in a folder or archive; raise Refused if a split or a class is missing."""
    if source.is_file() or any(source.glob("data_batch_1*")) or any(source.glob("*/data_batch_1*")):
        return _cifar10(source)
    found, left_out = dict[str, list[tuple[str, Source]]](), list[str]()
    for split, names in (("train", ("train",)), ("test", ("val", "test"))):
        found[split] = []
        for name in names:
            if found[split]:  # val/ and test/ are both there
                left_out += [str(path) for path in (source / name, source / f"{name}.tar") if path.exists()]
            else:
                found[split], others = _split(source, name)
                left_out += others
        if not found[split]:
            raise Refused(
                f"{source}: no images under {' or '.join(f'{name}/CLASS/' for name in names)}; expected class folders, "
                f"or {' or '.join(f'{name}.tar' for name in names)} with class folders or a tar file per class"
            )
    if all(kind == "" for kind, _ in found["test"]):
        found["test"] = _with_truth(source, [part for _, part in found["test"]])
    classes = tuple(sorted({kind for kind, _ in found["train"]}))
    if classes == ("",):
        raise Refused(f"{source}: the training images lie in no class folder; expected train/CLASS/*.jpg")
    strange = sorted({kind for kind, _ in found["test"]} - set(classes))
    if strange:
        raise Refused(f"{source}: test images of the class {strange[0]!r}, which has no training images")
    number = {kind: label for label, kind in enumerate(classes)}
    splits = {
        split: sorted((replace(part, label=number[kind]) for kind, part in parts), key=lambda part: part.name)
        for split, parts in found.items()
    }
    return Listing(classes, splits, tuple(sorted(left_out)))


def kept_listing(source: Path, dest: Path) -> Listing:
    """Return the listing stored when the preparation began, else a new one: listing a million files takes long."""
    path = dest / KEPT
    if not path.exists():
        return listing(source)
    kept = read_json(path, {"source": str, "classes": list, "splits": dict.fromkeys(SPLITS, list), "left_out?": list})
    if kept["source"] != str(source.resolve()):
        raise Refused(f"{dest}: begun from {kept['source']}; expected the same source, or an empty folder")
    try:
        splits = {
            split: [Source(name, label, Path(at), offset, length) for name, label, at, offset, length in rows]
            for split, rows in kept["splits"].items()
        }
    except (TypeError, ValueError):
        raise Refused(f"{path}: damaged; delete it and run again") from None
    return Listing(tuple(kept["classes"]), splits, tuple(kept.get("left_out") or ()))


def keep_listing(found: Listing, source: Path, dest: Path) -> None:
    """Store the listing until all shards are made, unless its images are in memory."""
    rows = {
        split: [[s.name, s.label, str(s.path.resolve()), s.offset, s.length] for s in sources]
        for split, sources in found.splits.items()
        if all(s.held is None for s in sources)
    }
    if rows:
        kept = {"source": str(source.resolve()), "classes": found.classes, "splits": rows, "left_out": found.left_out}
        write_text(dest / KEPT, json.dumps(kept))


def _split(root: Path, name: str) -> tuple[list[tuple[str, Source]], list[str]]:
    """Return (class name, image) for the images of a split, and the files that are left out.

    The class is "" if no image is in a class folder; if some are, the others are left out.
    """
    found, others = _files(root / name) if (root / name).is_dir() else _packed(root, name)
    if any(kind for kind, _ in found):
        others += [str(one.path) if one.length < 0 else f"{one.path}: {one.name}" for kind, one in found if not kind]
        found = [(kind, one) for kind, one in found if kind]
    return found, others


def _files(folder: Path) -> tuple[list[tuple[str, Source]], list[str]]:
    kinds = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    inside = {kind: [*kind.iterdir()] for kind in kinds}  # not by glob, for which what may not be read is empty
    empty = [kind for kind, there in inside.items() if not any(map(_readable, there))]
    if empty and folder.name == "train":
        raise Refused(f"{empty[0]}: no images in it; expected some, or no such folder: an empty class would be one the "
                      "network is never shown")  # fmt: skip
    paths = sorted([*folder.iterdir(), *(path for there in inside.values() for path in there)])
    found = [
        (path.parent.name if path.parent != folder else "", Source(str(path.relative_to(folder)), -1, path))
        for path in paths
        if _readable(path)
    ]
    read = {one.path for _, one in found}
    others = {*paths, *folder.glob("*/*/**/*")} - read
    return found, [str(path) for path in others if not path.is_dir() and not path.name.startswith(".")]


def _packed(root: Path, name: str) -> tuple[list[tuple[str, Source]], list[str]]:
    path = next((at for at in (root / f"{name}.tar", root / f"ILSVRC2012_img_{name}.tar") if at.is_file()), None)
    if path is None:
        return [], []
    others: list[str] = []
    try:
        with _Bounded(io.FileIO(path)) as file:
            found = list(_in_tar(path, file, name, others))
    except tarfile.TarError as error:
        raise Refused(f"{path}: {error}; expected a whole tar file that is not compressed") from None
    # class folders may be inside other folders, all equally deep: deeper files are in no class folder
    deep = min((len(folders) for folders, _ in found if folders), default=0)
    others += [f"{path}: {'/'.join(folders)}/{Path(one.name).name}" for folders, one in found if len(folders) > deep]
    return [("".join(folders[-1:]), one) for folders, one in found if len(folders) <= deep], others


def _readable(path: Path) -> bool:
    """Whether a path has the name of a picture and is a regular file: opening a named pipe would block.

    Hidden files are none: macOS writes ._1.jpg beside 1.jpg.
    """
    return path.suffix.lower() in FORMATS and not path.name.startswith(".") and path.is_file()


def _in_tar(
    path: Path, file: io.BufferedReader, split: str, others: list[str], kind: str = ""
) -> Iterator[tuple[tuple[str, ...], Source]]:
    """Yield (folders, image) for every image of the tar file at the current position of `file`.

    An inner tar file counts as a folder. The names of other files are appended to `others`.
    """
    with tarfile.open(fileobj=file, mode="r:") as tar:
        for member in tar:
            name, at = Path(member.name), member.offset_data
            inside = name.parts[name.parts.index(split) + 1 :] if split in name.parts[:-1] else name.parts
            file_itself = member.isfile() and not member.issparse()
            if file_itself and name.suffix == ".tar":
                file.seek(at)
                yield from _in_tar(path, file, split, others, name.stem)
            elif file_itself and name.suffix.lower() in FORMATS and not name.name.startswith("."):
                folders = (kind,) if kind else inside[:-1]
                yield folders, Source("/".join([*folders[-1:], name.name]), -1, path, at, member.size)
            elif not member.isdir() and not name.name.startswith("."):
                others.append(f"{path}: {member.name}")


class _Bounded(io.BufferedReader):
    """A file that is not read or sought beyond its end: the header of a tar file may claim any length."""

    def read(self, count: int | None = -1) -> bytes:
        left = min(LARGEST, os.fstat(self.fileno()).st_size - self.tell())
        return super().read(left if count is None or count < 0 else min(count, left))

    def seek(self, offset: int, whence: int = 0) -> int:
        return super().seek(min(offset, os.fstat(self.fileno()).st_size), whence)


def _with_truth(root: Path, images: list[Source]) -> list[tuple[str, Source]]:
    """Return (class, image) for ImageNet's validation images: line n of the devkit's ground truth is for image n."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    needed = ("data/meta.mat", "data/ILSVRC2012_validation_ground_truth.txt")
    try:
        if (root / DEVKIT).is_dir():
            meta, truth = ((root / DEVKIT / name).read_bytes() for name in needed)
        else:
            with tarfile.open(root / f"{DEVKIT}.tar.gz") as tar:
                meta, truth = (tar.extractfile(f"{DEVKIT}/{name}").read(LARGEST) for name in needed)  # type: ignore[union-attr]
        synsets = loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"]
        names = {int(one["ILSVRC2012_ID"]): str(one["WNID"]) for one in synsets}
        answers = [int(line) for line in truth.decode().split()]
        strange = [answer for answer in answers if answer not in names]
    except (OSError, EOFError, LookupError, TypeError, ValueError, AttributeError, zlib.error, tarfile.TarError,
            MatReadError) as error:  # fmt: skip
        raise Refused(
            f"{root}: validation images without class folders, and no ground truth ({' '.join(str(error).split())}); "
            f"expected {DEVKIT}.tar.gz beside them"
        ) from None
    if strange:
        raise Refused(f"{root}: ground truth {strange[0]}, expected a class of the devkit's meta.mat")
    if len(answers) != len(images):
        raise Refused(
            f"{root}: {len(images)} validation images, but {len(answers)} lines of ground truth; expected as many"
        )
    ordered = sorted(images, key=lambda source: source.name)
    return [(names[answer], one) for answer, one in zip(answers, ordered, strict=True)]


def _cifar10(source: Path) -> Listing:
    """Return the images of CIFAR-10, 32 × 32 pixels, as PNG in memory."""
    from PIL import Image

    from sweep.data import Images, cifar10
    from sweep.experiment import Data

    dataset = cifar10.read(Data("cifar10", path=str(source)))
    splits: dict[str, list[Source]] = {}
    for split, part in (("train", dataset.train), ("test", dataset.test)):
        assert isinstance(part, Images)
        splits[split] = []
        for number, (pixels, label) in enumerate(zip(part.images, part.labels, strict=True)):
            packed = io.BytesIO()
            Image.fromarray(pixels).save(packed, "PNG", compress_level=1)
            name = f"{cifar10.CIFAR10.classes[label]}/{split}_{number:05d}.png"
            splits[split].append(Source(name, int(label), held=packed.getvalue()))
    return Listing(cifar10.CIFAR10.classes, splits)
