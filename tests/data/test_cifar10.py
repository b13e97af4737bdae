"""CIFAR-10 in every form it comes in, at a size of two images per file."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from sweep.data import Images, cifar10, open_dataset
from sweep.data.cifar10 import CIFAR10
from sweep.errors import Refused
from sweep.experiment import Data
from tests.images import as_folder, assert_same, refusal, splits


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
        f"cifar10/{split}/{CIFAR10.classes[label]}/{number:04}.{suffix}": encoded(image)
        for split, part in zip(("train", "test"), tiny_cifar(), strict=True)
        for number, (image, label) in enumerate(zip(part.images, part.labels, strict=True))
    }


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


def hundred_files(form: str) -> dict[str, bytes]:
    """CIFAR-100 in its binary or pickled form: 100 training and 100 test images, coarse labels before the fine ones."""
    pixels = np.random.default_rng(2).integers(0, 256, (100, 3072), np.uint8)
    fine = np.arange(100, dtype=np.uint8)
    if form == "binary":
        content = np.concatenate([(fine // 5)[:, None], fine[:, None], pixels], 1).tobytes()
        return {"cifar-100-binary/train.bin": content, "cifar-100-binary/test.bin": content}
    pickled = {b"coarse_labels": (fine // 5).tolist(), b"fine_labels": fine.tolist(), b"data": pixels}
    content = pickle.dumps(pickled, protocol=3)
    return {"cifar-100-python/train": content, "cifar-100-python/test": content, "cifar-100-python/meta": b"not read"}


@pytest.mark.parametrize("form", ["binary", "python"])
def test_cifar_100_has_its_fine_labels_and_their_names(form, tmp_path):
    path = as_tar(hundred_files(form), tmp_path / f"cifar-100-{form}.tar.gz")
    dataset = open_dataset(Data(name="cifar100", path=str(path)))
    assert (dataset.classes, dataset.class_names[:2], dataset.class_names[-1]) == (
        100,
        ("apple", "aquarium_fish"),
        "worm",
    )
    np.testing.assert_array_equal(dataset.train.labels, np.arange(100))
    pixels = np.random.default_rng(2).integers(0, 256, (100, 3072), np.uint8)
    np.testing.assert_array_equal(planes(dataset.test.images), pixels)


def test_cifar_10_given_as_cifar_100_is_refused_with_where_to_get_it(tmp_path):
    path = as_tar(binary_files(), tmp_path / "cifar-10-binary.tar.gz")
    said = refusal(lambda: open_dataset(Data(name="cifar100", path=str(path))))
    assert "not readable as CIFAR-100" in said and "no file train in it" in said and "kriz/cifar.html" in said


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


def claiming(size: int, path: Path) -> Path:
    """A tar file of a few bytes whose first file is said to have so many."""
    member = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    member.size = size
    path.write_bytes(member.tobuf() + b"\0" * 2000)
    return path


def pickled_labels(labels: list[float] | None = None, kind: type = np.uint8) -> dict[str, bytes]:
    content = {b"labels": labels or [*range(10)], b"data": planes(batches()["test_batch"].images).astype(kind)}
    return python_files() | {"cifar-10-batches-py/test_batch": pickle.dumps(content, protocol=3)}


NAMED = {
    "6 GB in 3 kB": (lambda at: claiming(6 * 10**9, at / "claim.tar"), "data_batch_1.bin claims 6,000,000,000 bytes"),
    "a label of none": (lambda at: as_folder(pickled_labels([*range(9), 10]), at), "1 labels are none of 0 to 9, such"),
    "fewer labels": (lambda at: as_folder(pickled_labels([*range(9)]), at), "9 labels for 10 images"),
    "pixels of fractions": (
        lambda at: as_folder(pickled_labels(kind=np.float32), at),
        "test_batch: data is float32 of shape (10, 3072), expected uint8 of shape (n, 3072)",
    ),
    "pixels of 64 bits": (lambda at: as_folder(pickled_labels(kind=np.int64), at), "test_batch: data is int64"),
    "labels of fractions": (
        lambda at: as_folder(pickled_labels([0.5, *range(9)]), at),
        "test_batch: labels are float64 of shape (10,), expected whole numbers 0 to 9",
    ),
    "a label below 0": (lambda at: as_folder(pickled_labels([*range(9), -1]), at), "test_batch: 1 labels are none of"),
    "a byte of label above 9": (
        lambda at: as_folder(binary_files() | {"cifar-10-batches-bin/data_batch_2.bin": b"\x0a" * 3073}, at),
        "data_batch_2: 1 labels are none of 0 to 9, such as 10",
    ),
    "an empty batch": (
        lambda at: as_folder(binary_files() | {"cifar-10-batches-bin/data_batch_2.bin": b""}, at),
        "data_batch_2: 0 labels for 0 images",
    ),
    "6 GB in a folder": (lambda at: sparse(as_folder(binary_files(), at)), "data_batch_1.bin claims 6,000,000,000"),
    "another size": (
        lambda at: as_folder(picture_files("png") | {"cifar10/train/cat/9.png": picture(40)}, at),
        "train/cat/9.png has 40 x 40 pixels, expected 32 x 32",
    ),
}


def sparse(root: Path) -> Path:
    os.truncate(root / "cifar-10-batches-bin" / "data_batch_1.bin", 6 * 10**9)
    return root


def picture(side: int) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (side, side)).save(out, "png")
    return out.getvalue()


@pytest.mark.parametrize(("make", "said"), NAMED.values(), ids=NAMED)
def test_what_is_wrong_in_cifar_10_is_named(make, said, tmp_path):
    path = make(tmp_path)
    assert said in refusal(lambda: cifar(path))


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


@pytest.mark.parametrize("form", ["binary archive", "python archive", "tar.xz of PNG"])
@pytest.mark.filterwarnings("ignore:numpy.core:DeprecationWarning")
def test_a_flipped_bit_of_an_archive_is_never_another_image(form, tmp_path):
    """gzip's checksum stands behind the end of the tar file, and was never read."""
    path, stream = LOSSLESS[form](tmp_path), np.random.default_rng(5)
    whole = path.read_bytes()
    for at in stream.integers(0, len(whole), 25):
        content = bytearray(whole)
        content[at] ^= 1 << stream.integers(8)
        path.write_bytes(content)
        try:
            dataset = cifar(path)
        except Refused as error:
            assert "is not readable as CIFAR-10" in str(error) and "\n" not in str(error)
        else:  # a bit that says nothing, such as the time in a header
            for received, expected in zip((dataset.train, dataset.test), tiny_cifar(), strict=True):
                assert_same(received, expected)


def test_an_archive_under_a_published_name_that_differs_is_said_once(tmp_path, monkeypatch, capsys):
    """The published size and MD5 are those of a small archive here."""
    path = LOSSLESS["binary archive"](tmp_path)
    size, md5 = path.stat().st_size, hashlib.md5(path.read_bytes()).hexdigest()
    for published, said in (((size, md5), 0), ((size, "0" * 32), 1), ((size + 1, "0" * 32), 0)):
        cifar10._compare.cache_clear()
        monkeypatch.setitem(cifar10.PUBLISHED, path.name, published)
        assert len(cifar(path).train) == len(cifar(path).train) == 10
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == said and all("has the size of the published archive, but the MD5" in one for one in lines)


def test_a_tar_file_cut_off_between_two_pictures_is_refused(tmp_path):
    path = as_tar(picture_files("png"), tmp_path / "cut.tar", "w")
    content = path.read_bytes()
    path.write_bytes(content[: content.index(b"cifar10/test/ship/") + 10])
    assert "no pictures under test/ship/" in refusal(lambda: cifar(path))


@pytest.mark.parametrize(
    "name", ["numpy.testing._private.utils runstring", "numpy.f2py.capi_maps ndarray", "os system"]
)
def test_a_pickle_may_name_arrays_and_nothing_else(name):
    """Any module of numpy could be imported before, and one of them ran a program."""
    import io
    import pickle

    from sweep.data.cifar10 import _Numbers

    module, _, function = name.partition(" ")
    with pytest.raises(pickle.UnpicklingError, match="in a data file"):
        _Numbers(io.BytesIO(f"c{module}\n{function}\n.".encode())).load()
    array = np.arange(6, dtype=np.uint8)
    np.testing.assert_array_equal(_Numbers(io.BytesIO(pickle.dumps({"data": array}, 4))).load()["data"], array)
