"""Data sets: three splits behind one face, from every form a source comes in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sweep.data import Files, Images, hold_out, in_memory, open_dataset, resized
from sweep.experiment import Data
from tests.images import as_folder, assert_same, refusal, splits

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
    dataset = in_memory(Data(validation=10), [str(i) for i in range(40)], train, numbered(5))
    kept = hold_out(train, 10)[0].images / 255
    np.testing.assert_allclose(dataset.mean, kept.mean((0, 1, 2)))
    np.testing.assert_allclose(dataset.deviation, kept.std((0, 1, 2)))


def test_a_channel_without_contrast_does_not_divide_by_zero():
    flat = Images(np.full((4, 2, 2, 1), 7, np.uint8), np.zeros(4, np.int32))
    assert in_memory(Data(), ["0", "1"], flat, flat).deviation == (1e-3,)


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
    "no images": (["train/a/1.jpg", "train/b/1.jpg", "val/a/x.txt"], "no images under ", "val; expected CLASS/*.jpg"),
    "an empty class": (["train/a/1.jpg", "train/b/x.txt", "val/a/1.jpg"], "no images in ", "train/b; expected some"),
}


@pytest.mark.parametrize(("names", "before", "after"), WRONG_FOLDERS.values(), ids=WRONG_FOLDERS)
def test_a_folder_with_something_missing_is_refused(names, before, after, tmp_path):
    said = refusal(lambda: open_dataset(class_folders(tmp_path, names)))
    assert said.startswith(f"data.path: {before}{tmp_path}/{after}")
