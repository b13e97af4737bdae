"""Data sets: three splits behind one face, from every form a source comes in."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sweep.data import Files, Images, hold_out, in_memory, open_dataset, resized
from sweep.data.cifar10 import CLASSES
from sweep.errors import Refused
from sweep.experiment import Data


def splits(dataset) -> tuple[Images, Images, Images]:
    return dataset.train, dataset.validation, dataset.test


def assert_same(received: Images, expected: Images) -> None:
    assert (received.images.dtype, received.labels.dtype) == (np.uint8, np.int32)
    np.testing.assert_array_equal(received.images, expected.images)
    np.testing.assert_array_equal(received.labels, expected.labels)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---- digits


def test_the_digits_split_into_1301_137_and_359():
    dataset = open_dataset(Data(name="digits", validation=137))
    assert [len(split) for split in splits(dataset)] == [1301, 137, 359]
    assert (dataset.classes, dataset.image_size, dataset.channels) == (10, 8, 1)


def test_the_splits_of_the_digits_hold_every_image_once():
    from sklearn.datasets import load_digits

    dataset = open_dataset(Data(name="digits", validation=137))
    received = sorted(image.tobytes() for split in splits(dataset) for image in split.images)
    source = np.round(load_digits().images * 255 / 16).astype(np.uint8)
    assert received == sorted(image.tobytes() for image in source)


def test_every_split_of_the_digits_has_all_ten_classes():
    dataset = open_dataset(Data(name="digits", validation=137))
    assert [set(split.labels.tolist()) for split in splits(dataset)] == [set(range(10))] * 3


def test_the_test_digits_do_not_depend_on_the_validation_split():
    one, other = (open_dataset(Data(name="digits", validation=count)) for count in (0, 500))
    assert_same(one.test, other.test)
    assert (len(one.validation), len(one.train)) == (0, 1438)


# ---- holding out


def numbered(count: int) -> Images:
    """Images whose label is their number."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, 4, 4, 3), np.uint8)
    return Images(pixels, np.arange(count, dtype=np.int32))


def test_held_out_images_are_no_training_images_and_none_is_lost():
    train, validation = hold_out(numbered(50), 12)
    assert (len(train), len(validation)) == (38, 12)
    assert sorted([*train.labels, *validation.labels]) == list(range(50))


def test_the_held_out_images_are_the_same_every_time():
    np.random.seed(5)  # global random numbers must not matter
    first = hold_out(numbered(50), 12)[1].labels.tolist()
    np.random.seed(6)
    assert hold_out(numbered(50), 12)[1].labels.tolist() == first


def test_held_out_images_are_drawn_from_everywhere():
    held = hold_out(numbered(1000), 100)[1].labels
    assert held.min() < 100 and held.max() >= 900 and 350 < held.mean() < 650


def test_a_larger_validation_split_holds_the_smaller_one():
    small, large = (set(hold_out(numbered(50), count)[1].labels.tolist()) for count in (5, 20))
    assert small < large


@pytest.mark.parametrize("count", [50, 51])
def test_holding_out_everything_is_refused(count):
    said = refusal(lambda: hold_out(numbered(50), count))
    assert said == f"data.validation: received {count}, expected fewer than the 50 training images"


def test_pixel_statistics_are_those_of_the_training_images_alone():
    train = numbered(40)
    dataset = in_memory("made up", Data(validation=10), 40, train, numbered(5))
    kept = hold_out(train, 10)[0].images / 255
    np.testing.assert_allclose(dataset.mean, kept.mean((0, 1, 2)))
    np.testing.assert_allclose(dataset.deviation, kept.std((0, 1, 2)))


def test_a_channel_without_contrast_does_not_divide_by_zero():
    flat = Images(np.full((4, 2, 2, 1), 7, np.uint8), np.zeros(4, np.int32))
    assert in_memory("flat", Data(), 2, flat, flat).deviation == (1e-3,)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_resized_where_another_size_is_asked_for(channels):
    halves = np.zeros((2, 4, 4, channels), np.uint8)
    halves[:, :, 2:] = 200
    grown = resized(halves, 8)
    assert (grown.shape, grown.dtype) == ((2, 8, 8, channels), np.uint8)
    assert grown[0, :, 0].max() == 0 and grown[0, :, -1].min() == 200


def test_resizing_covers_all_splits():
    dataset = open_dataset(Data(name="digits", image_size=12, validation=10))
    assert dataset.image_size == 12
    assert {split.images.shape[1:] for split in splits(dataset)} == {(12, 12, 1)}


# ---- synthetic


def test_synthetic_images_are_the_same_every_time_and_other_in_training_and_test():
    data = Data(name="synthetic", image_size=6, classes=3, images=12)
    first, second = open_dataset(data), open_dataset(data)
    assert_same(first.train, second.train)
    assert first.train.images.shape == (12, 6, 6, 3)
    assert sorted(set(first.test.labels.tolist())) == [0, 1, 2]
    assert not np.array_equal(first.train.images, first.test.images)


# ---- CIFAR-10, at a size of two images per file


def tiny_cifar() -> tuple[Images, Images]:
    """Ten training and ten test images; class by class in the order in which class folders list them."""
    pixels = np.random.default_rng(1).integers(0, 256, (20, 32, 32, 3), np.uint8)
    labels = np.arange(10, dtype=np.int32)
    return Images(pixels[:10], labels), Images(pixels[10:], labels)


def planes(images: np.ndarray) -> np.ndarray:
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


def batches() -> dict[str, Images]:
    """The files of the original archives: five batches of training images and one of test images."""
    train, test = tiny_cifar()
    parts = {f"data_batch_{i + 1}": train.take(np.array([2 * i, 2 * i + 1])) for i in range(5)}
    return parts | {"test_batch": test}


def binary_files() -> dict[str, bytes]:
    def rows(part: Images) -> bytes:
        return np.concatenate([part.labels.astype(np.uint8)[:, None], planes(part.images)], 1).tobytes()

    files = {f"cifar-10-batches-bin/{name}.bin": rows(part) for name, part in batches().items()}
    return files | {"cifar-10-batches-bin/batches.meta.txt": b"airplane\n", "cifar-10-batches-bin/readme.html": b"."}


def python_files(core: str = "numpy.core") -> dict[str, bytes]:
    """`core`: where numpy kept its arrays' constructor when the archive was made."""

    def pickled(part: Images) -> bytes:
        content = {b"batch_label": b"of 5", b"labels": part.labels.tolist(), b"data": planes(part.images)}
        return pickle.dumps(content, protocol=3).replace(b"numpy._core", core.encode())

    files = {f"cifar-10-batches-py/{name}": pickled(part) for name, part in batches().items()}
    return files | {"cifar-10-batches-py/batches.meta": b"not read"}


def picture_files(form: str) -> dict[str, bytes]:
    from PIL import Image

    def encoded(image: np.ndarray) -> bytes:
        out = io.BytesIO()
        Image.fromarray(image).save(out, form, **({"quality": 95, "subsampling": 0} if form == "jpeg" else {}))
        return out.getvalue()

    suffix = {"png": "png", "jpeg": "jpg"}[form]
    return {
        f"cifar10/{split}/{CLASSES[label]}/{number:04}.{suffix}": encoded(image)
        for split, part in zip(("train", "test"), tiny_cifar(), strict=True)
        for number, (image, label) in enumerate(zip(part.images, part.labels, strict=True))
    }


def as_folder(files: dict[str, bytes], path: Path) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def as_tar(files: dict[str, bytes], path: Path, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def cifar(path: Path, validation: int = 0):
    return open_dataset(Data(name="cifar10", path=str(path), validation=validation))


LOSSLESS = {
    "binary folder": lambda at: as_folder(binary_files(), at),
    "binary archive": lambda at: as_tar(binary_files(), at / "cifar-10-binary.tar.gz"),
    "python folder": lambda at: as_folder(python_files(), at),
    "python archive": lambda at: as_tar(python_files(), at / "cifar-10-python.tar.gz"),
    "python archive of a new numpy": lambda at: as_tar(python_files("numpy._core"), at / "new.tar.gz"),
    "folder of PNG": lambda at: as_folder(picture_files("png"), at),
    "tar of PNG": lambda at: as_tar(picture_files("png"), at / "png.tar", "w"),
    "tar.xz of PNG": lambda at: as_tar(picture_files("png"), at / "png.tar.xz", "w:xz"),
}


@pytest.mark.filterwarnings("ignore:numpy.core:DeprecationWarning")
@pytest.mark.parametrize("make", LOSSLESS.values(), ids=LOSSLESS)
def test_cifar_10_is_the_same_arrays_in_every_lossless_form(make, tmp_path):
    dataset = cifar(make(tmp_path))
    assert (dataset.classes, dataset.image_size, dataset.channels) == (10, 32, 3)
    for received, expected in zip((dataset.train, dataset.test), tiny_cifar(), strict=True):
        assert_same(received, expected)


def test_cifar_10_as_jpeg_has_the_same_labels_and_nearly_the_same_pixels(tmp_path):
    dataset = cifar(as_tar(picture_files("jpeg"), tmp_path / "jpeg.tar", "w"))
    for received, expected in zip((dataset.train, dataset.test), tiny_cifar(), strict=True):
        np.testing.assert_array_equal(received.labels, expected.labels)
        difference = received.images.astype(int) - expected.images
        assert 0 < np.abs(difference).mean() < 6


def test_validation_images_of_cifar_10_come_out_of_training(tmp_path):
    dataset = cifar(as_folder(binary_files(), tmp_path), validation=4)
    assert [len(split) for split in splits(dataset)] == [6, 4, 10]
    assert sorted([*dataset.train.labels, *dataset.validation.labels]) == list(range(10))


class Harmful:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_a_pickle_that_would_run_code_is_refused_before_it_does(tmp_path):
    mark = tmp_path / "ran"
    harmful = pickle.dumps({b"data": Harmful(f"touch {mark}"), b"labels": []}, protocol=3)
    archive = as_tar(python_files() | {"cifar-10-batches-py/data_batch_1": harmful}, tmp_path / "harmful.tar.gz")
    assert "system in a data file); expected its archive or folder" in refusal(lambda: cifar(archive))
    assert not mark.exists()


@pytest.mark.parametrize("name", ["eval", "numpy.load"])
def test_a_pickle_that_names_any_other_function_is_refused(tmp_path, name):
    module, function = ("builtins", name) if "." not in name else name.split(".")
    content = b"c" + f"{module}\n{function}\n".encode() + b"."
    archive = as_tar(python_files() | {"cifar-10-batches-py/test_batch": content}, tmp_path / "harmful.tar.gz")
    assert f"({module}.{function} in a data file)" in refusal(lambda: cifar(archive))


def cut(path: Path, share: float) -> Path:
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    return path


BROKEN = {
    "truncated tar.gz": lambda at: cut(LOSSLESS["binary archive"](at), 0.5),
    "truncated python tar.gz": lambda at: cut(LOSSLESS["python archive"](at), 0.5),
    "truncated tar": lambda at: cut(LOSSLESS["tar of PNG"](at), 0.5),
    "truncated tar.xz": lambda at: cut(LOSSLESS["tar.xz of PNG"](at), 0.5),
    "no archive": lambda at: as_folder({"file.tar.gz": b"<html>not found</html>"}, at) / "file.tar.gz",
    "empty folder": lambda at: at,
    "truncated batch": lambda at: as_folder(
        binary_files() | {"cifar-10-batches-bin/data_batch_3.bin": b"\0" * 3000}, at
    ),
    "missing batch": lambda at: as_folder(
        {name: content for name, content in binary_files().items() if "data_batch_4" not in name}, at
    ),
    "truncated picture": lambda at: as_folder(
        picture_files("png") | {"cifar10/test/cat/0003.png": picture_files("png")["cifar10/test/cat/0003.png"][:900]},
        at,
    ),
    "unknown class": lambda at: as_folder(
        picture_files("png") | {"cifar10/train/zebra/0000.png": picture_files("png")["cifar10/test/cat/0003.png"]}, at
    ),
    "no test pictures": lambda at: as_folder(
        {name: content for name, content in picture_files("png").items() if "/train/" in name}, at
    ),
}


@pytest.mark.filterwarnings("ignore:numpy.core:DeprecationWarning")
@pytest.mark.parametrize("make", BROKEN.values(), ids=BROKEN)
def test_cifar_10_that_is_not_whole_is_refused_with_where_to_get_it(make, tmp_path):
    path = make(tmp_path)
    said = refusal(lambda: cifar(path))
    assert said.startswith(f"data.path: {path} is not readable as CIFAR-10 (")
    assert "expected its archive or folder, from https://www.cs.toronto.edu/~kriz/cifar.html" in said


def damaged(path: Path) -> Path:
    """The same file with 200 bytes in its middle turned around."""
    content = np.fromfile(path, np.uint8)
    content[len(content) // 2 :][:200] ^= 0xFF
    content.tofile(path)
    return path


@pytest.mark.parametrize("form", ["binary archive", "tar.xz of PNG"])
def test_a_damaged_archive_is_refused(form, tmp_path):
    path = damaged(LOSSLESS[form](tmp_path))
    assert "is not readable as CIFAR-10" in refusal(lambda: cifar(path))


def test_a_tar_file_cut_off_between_two_pictures_is_refused(tmp_path):
    path = as_tar(picture_files("png"), tmp_path / "cut.tar", "w")
    content = path.read_bytes()
    path.write_bytes(content[: content.index(b"cifar10/test/ship/") + 10])
    assert "no pictures under test/ship/" in refusal(lambda: cifar(path))


# ---- places


@pytest.mark.parametrize(
    ("name", "where"),
    [("cifar10", "https://www.cs.toronto.edu/~kriz/cifar.html"), ("folder", "a folder with train/CLASS/*.jpg")],
)
def test_a_missing_place_is_refused_with_what_is_needed(name, where, tmp_path):
    not_given = refusal(lambda: open_dataset(Data(name=name)))
    assert not_given.startswith(f"data.path: not given; {name} needs ") and where in not_given
    nothing = refusal(lambda: open_dataset(Data(name=name, path=str(tmp_path / "none"))))
    assert nothing.startswith(f"data.path: nothing at {tmp_path / 'none'}; ") and where in nothing


# ---- class folders

LAYOUT = ["train/b/2.JPEG", "train/b/1.jpg", "train/a/9.png", "train/a/notes.txt", "val/b/5.jpeg", "val/a/6.jpg"]


def class_folders(at: Path, names: list[str]) -> Data:
    as_folder(dict.fromkeys(names, b"never opened"), at)
    return Data(name="folder", path=str(at))


def listed(split: Files, root: Path) -> list[tuple[str, int]]:
    return [(str(Path(p).relative_to(root)), int(n)) for p, n in zip(split.paths, split.labels, strict=True)]


def test_the_classes_of_a_folder_are_numbered_in_the_order_of_their_names(tmp_path):
    dataset = open_dataset(class_folders(tmp_path, LAYOUT))
    assert listed(dataset.train, tmp_path) == [("train/a/9.png", 0), ("train/b/1.jpg", 1), ("train/b/2.JPEG", 1)]
    assert listed(dataset.test, tmp_path) == [("val/a/6.jpg", 0), ("val/b/5.jpeg", 1)]
    assert (dataset.classes, dataset.image_size, dataset.channels) == (2, 224, 3)


def test_the_test_images_of_a_folder_may_be_called_test(tmp_path):
    dataset = open_dataset(class_folders(tmp_path, [name.replace("val/", "test/") for name in LAYOUT]))
    assert listed(dataset.test, tmp_path) == [("test/a/6.jpg", 0), ("test/b/5.jpeg", 1)]


def test_validation_images_of_a_folder_come_out_of_training(tmp_path):
    data = class_folders(tmp_path, LAYOUT)
    dataset = open_dataset(Data(name="folder", path=data.path, validation=1, image_size=64))
    assert dataset.image_size == 64
    together = sorted(listed(dataset.train, tmp_path) + listed(dataset.validation, tmp_path))
    assert (len(dataset.validation), together) == (1, listed(open_dataset(data).train, tmp_path))


WRONG_FOLDERS = {
    "no val": ([name for name in LAYOUT if "train" in name], "no folder ", "val; expected a folder with train/CLASS"),
    "no train": ([name for name in LAYOUT if "val" in name], "no folder ", "train; expected a folder with train/CLASS"),
    "one class": (["train/a/1.jpg", "val/a/1.jpg"], "1 class folders under ", "train, expected 2 or more"),
    "strange class": ([*LAYOUT, "val/c/1.jpg"], "", "val/c is no class of the training folders"),
    "no images": (["train/a/x.txt", "train/b/x.txt", "val/a/1.jpg"], "no images under ", "train; expected CLASS/*.jpg"),
}


@pytest.mark.parametrize(("names", "before", "after"), WRONG_FOLDERS.values(), ids=WRONG_FOLDERS)
def test_a_folder_with_something_missing_is_refused(names, before, after, tmp_path):
    said = refusal(lambda: open_dataset(class_folders(tmp_path, names)))
    assert said.startswith(f"data.path: {before}{tmp_path}/{after}")
