"""Shards in the memory of the devices: what is trained there, and when they are kept there."""

from __future__ import annotations

import dataclasses
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from sweep.data import open_dataset, shards
from sweep.errors import Refused
from sweep.experiment import Data
from tests.commands import python
from tests.conftest import tiny
from tests.trainings import assert_equal_bits, assert_nothing_is_traced_later, start_at, trained, trained_in_pieces

pytestmark = pytest.mark.tensorflow


def kept(folder, resident: str = "on", **recipe):
    data = Data("shards", path=str(folder), image_size=16, validation=6, resident=resident)
    return dataclasses.replace(tiny(**recipe), data=data)


def test_shards_in_memory_train_to_the_bits_of_streamed_ones_also_when_stopped_after_any_step(jpeg, program, tmp_path):
    streamed, resident = program(kept(jpeg, "off")), program(kept(jpeg))
    whole, weights = trained(streamed, start_at(streamed), tmp_path / "streamed")
    pieces, end = trained_in_pieces(resident, start_at(resident), tmp_path / "resident")
    assert_equal_bits(end, weights)
    assert pieces.test == whole.test and pieces.validation == whole.validation
    np.testing.assert_array_equal(*(one.evaluation.logits(one.dataset.test) for one in (streamed, resident)))
    few = resident.dataset.test.take(np.arange(12).repeat(22))  # 264 images: a second batch, padded
    assert resident.evaluation.metrics(few) == streamed.evaluation.metrics(few)


def test_what_is_traced_ahead_is_what_training_calls(jpeg, program, tmp_path):
    assert_nothing_is_traced_later(program(kept(jpeg)), tmp_path)


def test_divided_among_the_devices_shards_train_to_the_bits_of_streamed_ones(jpeg):
    ends = json.loads(python("-m", "tests.data.shards.test_resident", jpeg).stdout.splitlines()[-1])
    assert ends["divided"] == ends["whole"] == ends["off"]
    assert ends["rows"] == {"divided": 27, "whole": 54}  # of 54 training images, on each of 2 devices


@pytest.mark.parametrize("write", ["write_slice", "write_rows"])  # to a GPU, to a CPU
def test_images_are_written_from_a_row_on(write):
    import tensorflow as tf

    from sweep.data import resident

    expected = np.arange(7 * 12, dtype=np.uint8).reshape(7, 2, 2, 3)
    variable = tf.Variable(expected)
    expected[3:5] = 200
    getattr(resident, write)(variable, 3, tf.constant(expected[3:5]))
    np.testing.assert_array_equal(variable.numpy(), expected)


def test_a_gpu_is_never_scattered_to(raw, monkeypatch):
    """TensorFlow does that on the host for whole numbers, to which it copies the whole variable and back each time."""
    from sweep.data import resident
    from sweep.devices import prepare

    written, split = [], shards.records_of(shards.open_prepared(raw), "train")
    made = resident.ResidentShards(split, prepare(), shards.Reader(split), divided=False)
    monkeypatch.setattr(resident, "write_slice", lambda variable, first, images: written.append((first, len(images))))
    monkeypatch.setattr(resident, "PIECE", 25)
    made._fill((SimpleNamespace(device="/job:localhost/replica:0/task:0/device:GPU:0"),), shards.Reader(split))
    assert written == [(0, 25), (25, 25), (50, 10)]


@pytest.mark.parametrize("size", [1, 3, 4])
def test_images_come_back_from_whole_numbers_and_absent_ones_are_zero(size):
    from sweep.data.resident import from_words, in_words

    images = np.random.default_rng(size).integers(0, 256, (5, size, size, 3)).astype(np.uint8)
    here = np.array([True, False, True, True, False])
    found = from_words(in_words(images, here), images.shape[1:]).numpy()
    np.testing.assert_array_equal(found, np.where(here[:, None, None, None], images, 0))


@pytest.mark.parametrize(
    ("asked", "images", "gib", "replicas", "sharing", "expected"),
    [
        ("auto", 1_331_167, 139, 1, 1, "whole"),  # ImageNet at 160 px on an H200
        ("auto", 1_331_167, 80, 4, 1, "divided"),
        ("auto", 1_331_167, 80, 1, 1, ""),
        ("auto", 1_331_167, 139, 1, 2, ""),  # two trainings share the GPU
        ("off", 10, 139, 1, 1, ""),
        ("auto", 10, 0, 1, 1, ""),  # a CPU
        ("on", 10, 0, 1, 1, "whole"),
    ],
)
def test_shards_are_kept_where_they_fit_beside_the_training(jpeg, asked, images, gib, replicas, sharing, expected):
    assert residence(jpeg, asked, images, gib, replicas, sharing) == expected


def test_asked_for_where_they_do_not_fit_they_are_refused_with_both_sizes(jpeg):
    with pytest.raises(Refused, match=r"data.resident: on needs 102 GB .* there are 64 GB for them; expected auto"):
        residence(jpeg, "on", 1_331_167, 80)


def test_what_a_process_keeps_already_takes_room(jpeg):
    """As the images of the source of a transfer do, or another training's program."""
    found = [residence(jpeg, "auto", 800_000, 139, beside=used) for used in (0, 60 << 30)]
    assert found == ["whole", ""]


def residence(folder, asked: str, images: int, gib: int, replicas: int = 1, sharing: int = 1, beside: int = 0) -> str:
    from sweep.data import resident
    from sweep.devices import Devices

    class Described(Devices):
        memory, used = gib << 30, beside

    prepared = dataclasses.replace(shards.open_prepared(folder), size=160)
    split = shards.Shards(prepared, "train", np.zeros(images, shards.RECORD))
    return resident.residence(split, Described(None, replicas, "GPU" if gib else "CPU", sharing=sharing), asked)


def two_devices(folder: str) -> dict:
    """Train on two devices from streamed, whole and divided shards; return digests of weights, and rows per device."""
    import zlib

    from sweep.data import feed
    from sweep.devices import prepare
    from sweep.training.program import Program
    from tests.trainings import epoch

    ends: dict = {"rows": {}}
    for way in ("off", "whole", "divided"):
        feed.residence = lambda split, devices, asked, way=way: way.removeprefix("off")
        experiment = kept(folder, "off", norm_images=2)
        run = Program(experiment, open_dataset(experiment.data), prepare(2))
        run.load(run.network.initial(0))
        feeding = run.feed(run.dataset.train)
        if way == "off":
            plan = epoch(run)
            for step, batch in enumerate(feeding.batches(plan.order, plan.seeds)):
                run.run(plan, step, step + 1, batch)
        else:
            run.run(epoch(run), 0, run.steps)
            ends["rows"][way] = run.devices.strategy.experimental_local_results(feeding.images)[0].shape[0]
        metrics = run.evaluation.metrics(run.dataset.test.take(np.arange(11)))  # padded to 12
        ends[way] = [zlib.crc32(part.tobytes()) for part in run.weights()] + sorted(metrics.values())
    return ends


if __name__ == "__main__":
    print(json.dumps(two_devices(sys.argv[1])))
