"""Images as they come: where each of them lies, and what it shows.

Class folders, the same packed into tar files, ImageNet as it is shipped (a tar file of tar files for training, a flat
one with the devkit's ground truth for validation), or CIFAR-10's own archives. Tar files are read in place.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sweep.errors import Refused
from sweep.files import write_text

KEPT = ".sources.json"
SUFFIXES = {".jpg", ".jpeg", ".png"}
DEVKIT = "ILSVRC2012_devkit_t12"


@dataclass(frozen=True)
class Source:
    """One image where it lies: a file, a part of a tar file, or at hand."""

    name: str
    label: int
    path: Path = Path()
    offset: int = 0
    length: int = -1  # to the end
    held: bytes | None = None

    def content(self) -> bytes:
        if self.held is not None:
            return self.held
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.length)


@dataclass(frozen=True)
class Listing:
    """Everything there is, in the order of its names."""

    classes: tuple[str, ...]
    splits: dict[str, list[Source]]


def listing(source: Path) -> Listing:
    """What a folder or archive holds. Refuses what is not complete."""
    if source.is_file() or any(source.glob("data_batch_1*")) or any(source.glob("*/data_batch_1*")):
        return _cifar10(source)
    found: dict[str, list[tuple[str, Source]]] = {}
    for split, names in (("train", ("train",)), ("test", ("val", "test"))):
        found[split] = next((made for name in names if (made := _split(source, name))), [])
        if not found[split]:
            raise Refused(
                f"{source}: no images under {' or '.join(f'{name}/CLASS/' for name in names)}; expected class folders, "
                f"or {' or '.join(f'{name}.tar' for name in names)} with class folders or a tar file per class"
            )
    if all(kind == "" for kind, _ in found["test"]):
        found["test"] = _with_truth(source, [part for _, part in found["test"]])
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
    path = dest / KEPT
    if not path.exists():
        return listing(source)
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


def keep_listing(found: Listing, source: Path, dest: Path) -> None:
    """Until all shards are made. What is at hand anyway need not be kept."""
    rows = {
        split: [[s.name, s.label, str(s.path.resolve()), s.offset, s.length] for s in sources]
        for split, sources in found.splits.items()
        if all(s.held is None for s in sources)
    }
    if rows:
        text = json.dumps({"source": str(source.resolve()), "classes": found.classes, "splits": rows})
        write_text(dest / KEPT, text)


def _split(root: Path, name: str) -> list[tuple[str, Source]]:
    """The images of a split with the names of their classes; no name where they lie flat."""
    folder = root / name
    if folder.is_dir():
        empty = [kind for kind in sorted(folder.iterdir()) if kind.is_dir() and not any(map(_readable, kind.glob("*")))]
        if empty and name == "train":
            raise Refused(f"{empty[0]}: no images in it; expected some, or no such folder: an empty class would be one "
                          "the network is never shown")  # fmt: skip
        return [
            (path.parent.name if path.parent != folder else "", Source(_name(path.relative_to(folder)), -1, path))
            for path in sorted([*folder.glob("*"), *folder.glob("*/*")])
            if _readable(path)
        ]
    for packed in (root / f"{name}.tar", root / f"ILSVRC2012_img_{name}.tar"):
        if packed.is_file():
            try:
                return list(_in_tar(packed, name))
            except tarfile.TarError as error:
                raise Refused(f"{packed}: {error}; expected a whole tar file that is not compressed") from None
    return []


def _readable(path: Path) -> bool:
    """A picture by its name, and a file: whoever opens a pipe waits for ever."""
    return path.suffix.lower() in SUFFIXES and path.is_file()


def _name(path: Path) -> str:
    """CLASS/FILE, or FILE."""
    return "/".join(path.parts[-2:])


def _in_tar(
    path: Path, split: str, base: int = 0, kind: str = "", file: io.BufferedReader | None = None
) -> Iterator[tuple[str, Source]]:
    """Images of class folders, or of one tar file per class, where they lie in the outer file."""
    with path.open("rb") as opened, tarfile.open(fileobj=_From(file or opened, base), mode="r:") as tar:
        for member in tar:
            name = Path(member.name)
            at = base + member.offset_data
            if member.isfile() and name.suffix == ".tar":
                yield from _in_tar(path, split, at, name.stem, file or opened)
            elif member.isfile() and name.suffix.lower() in SUFFIXES:
                own = kind or (name.parent.name if name.parent.name != split else "")
                yield own, Source(f"{own}/{name.name}" if own else name.name, -1, path, at, member.size)


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


def _with_truth(root: Path, images: list[Source]) -> list[tuple[str, Source]]:
    """ImageNet's validation images lie flat; the n-th of them is what line n of the devkit's ground truth says."""
    from scipy.io import loadmat

    needed = ("data/meta.mat", "data/ILSVRC2012_validation_ground_truth.txt")
    try:
        if (root / DEVKIT).is_dir():
            meta, truth = ((root / DEVKIT / name).read_bytes() for name in needed)
        else:
            with tarfile.open(root / f"{DEVKIT}.tar.gz") as tar:
                meta, truth = (tar.extractfile(f"{DEVKIT}/{name}").read() for name in needed)  # type: ignore[union-attr]
    except (OSError, KeyError, tarfile.TarError) as error:
        raise Refused(
            f"{root}: validation images without class folders, and no ground truth ({' '.join(str(error).split())}); "
            f"expected {DEVKIT}.tar.gz beside them"
        ) from None
    synsets = loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"]
    names = {int(one["ILSVRC2012_ID"]): str(one["WNID"]) for one in synsets}
    answers = [int(line) for line in truth.decode().split()]
    if len(answers) != len(images):
        raise Refused(
            f"{root}: {len(images)} validation images, but {len(answers)} lines of ground truth; expected as many"
        )
    ordered = sorted(images, key=lambda source: source.name)
    return [(names[answer], one) for answer, one in zip(answers, ordered, strict=True)]


def _cifar10(source: Path) -> Listing:
    """Its images, 32 pixels each, as lossless pictures."""
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
            name = f"{cifar10.CLASSES[label]}/{split}_{number:05d}.png"
            splits[split].append(Source(name, int(label), held=packed.getvalue()))
    return Listing(cifar10.CLASSES, splits)
