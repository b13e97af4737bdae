"""A file exists only complete, and nothing half-written is ever read."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass

import h5py
import numpy as np
import pytest

from sweep import files
from sweep.errors import Refused
from sweep.experiment import point
from sweep.graph.home import RESULT, Home
from sweep.graph.state import states
from tests import synthetic
from tests.synthetic import files_under, refusal

ARRAYS = {
    "flat": np.array([1.5, -0.0, np.inf, 1e-40], np.float32),
    "group/counts": np.array([[1, 2], [3, 2**40]], np.int64),
    "group/bits": np.array([7, 255], np.uint8),
    "single": np.array(0.1, np.float64),
    "empty": np.zeros((0, 3), np.float32),
}
ATTRIBUTES = {"epoch": 3, "share": 0.25, "hash": "0123abcdef", "stopped": True}


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "arrays.h5"
    files.write_arrays(path, ARRAYS, ATTRIBUTES)
    return path


# ---- one step from the old file to the new


def test_of_several_that_are_to_be_first_one_stays(tmp_path):
    path = tmp_path / "arrays.h5"
    for value in (1.0, 2.0):
        files.write_arrays(path, {"a": np.full(3, value)}, {}, first=True)
    assert files.read_arrays(path)[0]["a"][0] == 1.0
    assert [one.name for one in tmp_path.iterdir()] == ["arrays.h5"]


def test_a_new_file_replaces_the_old_one(tmp_path):
    path = tmp_path / "below" / "text.txt"
    files.write_text(path, "old")
    files.write_text(path, "new")
    assert (path.read_text(), files_under(tmp_path)) == ("new", ["below", "below/text.txt"])


def test_until_the_end_of_the_writing_the_old_file_is_there_whole(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("old")
    with files.replacing(path) as beside:
        beside.write_text("new")
        assert path.read_text() == "old"
        assert beside.parent == path.parent  # a rename within one file system
    assert path.read_text() == "new"


def test_a_fault_while_writing_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), files.replacing(path) as beside:
        beside.write_text("half of the n")
        raise ZeroDivisionError
    assert (path.read_text(), files_under(tmp_path)) == ("old", ["text.txt"])


def test_a_fault_while_writing_a_first_file_leaves_none(tmp_path):
    with pytest.raises(TypeError):
        files.write_arrays(tmp_path / "arrays.h5", {"good": np.zeros(3), "bad": np.array([object()])}, {})
    assert files_under(tmp_path) == []


def test_a_fault_while_renaming_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    path = tmp_path / "text.txt"
    path.write_text("old")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        files.write_text(path, "new")
    assert (path.read_text(), files_under(tmp_path)) == ("old", ["text.txt"])


def test_what_an_interrupted_writer_left_beside_a_file_is_never_read(tmp_path):
    home = Home(tmp_path / "small", synthetic.experiment())
    whole = synthetic.write_snapshot(home, synthetic.network().initial(0), None)
    first, mask = home.snapshot(home.graph.dense[0], point(0)), home.mask(home.graph.trainings[1].mask)
    for path in (
        first,
        mask,
        synthetic.dense(home) / "result.json",
        home.folder_of("ticket-q0.5-k0-seed0") / "result.json",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(f".{path.name}.123.tmp").write_bytes(whole.read_bytes())
    assert {state.state for state in states(home)} == {"waiting"}
    assert "no such file" in refusal(lambda: files.read_snapshot(first, synthetic.network()))
    assert "no such file" in refusal(lambda: files.read_arrays(mask))


# ---- arrays


def test_arrays_and_attributes_come_back_as_they_were(written):
    arrays, attributes = files.read_arrays(written)
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        assert arrays[name].tobytes() == array.tobytes()
    assert attributes == ATTRIBUTES


def test_attributes_come_back_as_plain_numbers_and_text(written):
    _, attributes = files.read_arrays(written)
    assert {key: type(value) for key, value in attributes.items()} == {k: type(v) for k, v in ATTRIBUTES.items()}


def damaged(path, how: str) -> None:
    whole = path.read_bytes()
    parts = {
        "cut to half": whole[: len(whole) // 2],
        "cut by one byte": whole[:-1],
        "cut to its first bytes": whole[:64],
        "empty": b"",
        "text": b"epoch,accuracy\n1,0.5\n" * 40,
    }
    path.write_bytes(parts[how])


@pytest.mark.parametrize("how", ["cut to half", "cut by one byte", "cut to its first bytes", "empty", "text"])
def test_a_damaged_file_is_refused_by_name_in_one_line(written, how):
    damaged(written, how)
    said = refusal(lambda: files.read_arrays(written))
    assert said.startswith(f"{written}: truncated or not HDF5 (")
    assert said.endswith("; delete it and run again")


@pytest.mark.parametrize("at", range(0, 2000, 40))
def test_a_file_with_damage_inside_is_read_or_refused_by_name(written, at):
    whole = bytearray(written.read_bytes())
    whole[at : at + 8] = b"\xa5\x5a" * 4
    written.write_bytes(whole)
    try:
        files.read_arrays(written)
    except Refused as error:
        assert str(written) in str(error) and "\n" not in str(error)


def test_a_file_that_may_not_be_read_is_not_called_damaged(written, monkeypatch):
    """Who deleted it on such an advice would lose a whole one. Simulated, for the superuser may read all."""

    def denied(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Unable to open file")

    monkeypatch.setattr(files.h5py, "File", denied)
    said = refusal(lambda: files.read_arrays(written))
    assert said == f"{written}: Permission denied; expected a file that can be read"


def test_a_missing_file_is_refused_by_name_in_one_line(tmp_path):
    path = tmp_path / "none.h5"
    assert (
        refusal(lambda: files.read_arrays(path))
        == f"{path}: no such file; lottery sweep writes it, with all else that is missing"
    )


def test_a_damaged_json_file_is_refused_by_name_in_one_line(tmp_path):
    path = tmp_path / "result.json"
    files.write_json(path, {"test": {"top1": 0.5}})
    assert files.read_json(path) == {"test": {"top1": 0.5}}
    path.write_text(path.read_text()[:-5])
    assert refusal(lambda: files.read_json(path)) == f"{path}: not readable as JSON; {files.MEND}"


@pytest.mark.parametrize("name", ["kernel", "threshold"])
def test_a_byte_that_changed_on_the_disk_is_seen(name, tmp_path):
    """Zeroed bytes of a mask, a flipped exponent of a weight: both would train to another number without a word."""
    path = tmp_path / "some.h5"
    arrays = {"kernel": np.ones((3, 4), np.float32), "threshold": np.array(0.25)}
    files.write_arrays(path, arrays, {"network": "resnet20"})
    found, attributes = files.read_arrays(path)
    assert attributes == {"network": "resnet20"} == files.read_attributes(path)
    assert all(found[key].tobytes() == arrays[key].tobytes() for key in arrays)
    with h5py.File(path, "r+") as f:
        f[name][...] = f[name][...] * 2
    assert refusal(lambda: files.read_arrays(path)).startswith(f"{path}: changed since it was written (checksum)")


# ---- lines: metrics, jobs


def test_metrics_are_read_in_the_order_they_were_written(tmp_path):
    assert files.read_metrics(tmp_path / "none") == []
    synthetic.epochs(tmp_path / "cell", 3)
    assert [line["epoch"] for line in files.read_metrics(tmp_path / "cell")] == [1, 2, 3]


@pytest.mark.parametrize("torn", ['{"epoch": 3, "train_lo', "{", '{"epoch": 3}'])
def test_a_last_line_without_its_end_is_ignored(tmp_path, torn):
    synthetic.epochs(tmp_path, 2)
    with open(tmp_path / "metrics.jsonl", "a") as f:
        f.write(torn)
    assert [line["epoch"] for line in files.read_metrics(tmp_path)] == [1, 2]


def test_a_damaged_line_that_is_not_the_last_is_refused_by_name(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1\n{"epoch": 2}\n')
    assert refusal(lambda: files.read_metrics(tmp_path)).startswith(f"{tmp_path / 'metrics.jsonl'}: ")


def test_trimming_drops_the_lines_that_are_not_kept_and_a_torn_one(tmp_path):
    synthetic.epochs(tmp_path, 3)
    with open(tmp_path / "metrics.jsonl", "a") as f:
        f.write('{"epoch": 4, "tr')
    before = files.read_metrics(tmp_path)
    files.trim_metrics(tmp_path, lambda line: line["epoch"] <= 2)
    assert files.read_metrics(tmp_path) == before[:2]
    synthetic.epochs(tmp_path, 1)  # what is written next stands on a line of its own
    assert [line["epoch"] for line in files.read_metrics(tmp_path)] == [1, 2, 1]


def test_trimming_metrics_that_do_not_exist_makes_no_file(tmp_path):
    files.trim_metrics(tmp_path, lambda line: True)
    assert files_under(tmp_path) == []


def test_a_line_that_was_cut_off_is_gone_when_the_next_is_written(tmp_path):
    path = tmp_path / "jobs.jsonl"
    files.append_line(path, {"id": 1})
    with open(path, "a") as f:
        f.write('{"id": 2, "par')  # a kill, or a full disk
    assert files.read_lines(path) == [{"id": 1}]
    files.append_line(path, {"id": 3})
    assert files.read_lines(path) == [{"id": 1}, {"id": 3}]


def flipped(text: bytes, place: int, bit: int) -> bytes:
    return text[:place] + bytes([text[place] ^ (1 << bit)]) + text[place + 1 :]


def test_of_every_bit_flipped_in_a_sealed_file_none_goes_unnoticed(tmp_path):
    """Either the file is refused in one line, or what is read is what was written."""
    path, value = tmp_path / "result.json", {"test": {"top1": 0.9415, "loss": 0.25}, "kept": 7, "version": "0.3.0"}
    files.write_json(path, value)
    whole = path.read_bytes()
    taken = 0
    for place in range(len(whole)):
        for bit in range(8):
            path.write_bytes(flipped(whole, place, bit))
            try:
                assert files.read_json(path) == value, (place, bit)
                taken += 1
            except Refused as error:
                assert "\n" not in str(error)
    assert taken < 0.02 * 8 * len(whole), "white space alone may change"


def test_a_changed_line_of_metrics_is_refused_and_an_unsealed_one_of_an_earlier_version_is_read(tmp_path):
    synthetic.epochs(tmp_path, 3)
    path = tmp_path / "metrics.jsonl"
    text = path.read_text()
    assert [line["epoch"] for line in files.read_metrics(tmp_path)] == [1, 2, 3]
    path.write_text(text.replace('"seconds": 2.0', '"seconds": 3.0', 1))
    assert "changed since it was written" in refusal(lambda: files.read_metrics(tmp_path))
    path.write_text('{"epoch": 1, "seconds": 1.0, "evaluation_seconds": 0.5}\n')
    assert len(files.read_metrics(tmp_path)) == 1


WRONG_VALUES = {
    "true for a number": {"test": {"top1": 0.5, "top5": 0.9, "loss": True}},
    "an accuracy over 1": {"test": {"top1": 1.5, "top5": 0.9, "loss": 1.0}},
    "half a weight": {"test": {"top1": 0.5, "top5": 0.9, "loss": 1.0}, "kept": 3.5},
}


@pytest.mark.parametrize("case", WRONG_VALUES)
def test_a_result_with_a_value_that_cannot_be_is_refused_by_every_reader(case, tmp_path):
    whole = {"validation": {}, "devices": 1, "steps_per_epoch": 100} | WRONG_VALUES[case]
    (tmp_path / "result.json").write_text(json.dumps(whole))
    assert str(tmp_path / "result.json") in refusal(lambda: files.read_json(tmp_path / "result.json", RESULT))


# ---- records


@dataclass(frozen=True)
class Note:
    """As a program would keep it: some fields came with a later version."""

    word: str
    count: int
    tasks: tuple[str, ...]
    share: float = 0.5
    done: bool = False


def test_a_record_comes_back_as_it_was_and_sealed(tmp_path):
    path, note = tmp_path / "note.json", Note("a", 2, ("b", "c"), 1.0, True)
    files.write_json(path, note)
    assert files.read(path, Note) == note and files.CHECKSUM in json.loads(path.read_text())
    path.write_text(path.read_text().replace('"count": 2', '"count": 3'))
    assert "changed since it was written" in refusal(lambda: files.read(path, Note))


def test_a_record_of_another_version_is_read_as_far_as_it_is_known(tmp_path):
    path = tmp_path / "note.json"
    assert files.read(path, Note) is None
    files.write_json(path, {"word": "a", "count": 2, "tasks": [], "share": None, "colour": "red"})
    assert files.read(path, Note) == Note("a", 2, ())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"word": 3}, "word is not text"), ({"word": None}, "word is not text"), ({"count": True}, "count is not"),
        ({"count": 1.5}, "count is not a whole number"), ({"tasks": ["a", 1]}, "tasks is not a list"),
        ({"tasks": "a"}, "tasks is not a list"), ({"share": "much"}, "share is not a number"),
        ({"share": float("nan")}, "share is not a number"), ({"done": 1}, "done is not true or false"),
    ],
)  # fmt: skip
def test_a_record_with_another_kind_of_value_is_refused_by_file_and_key(wrong, said, tmp_path):
    path = tmp_path / "note.json"
    files.write_json(path, {"word": "a", "count": 2, "tasks": []} | wrong)
    assert refusal(lambda: files.read(path, Note)).startswith(f"{path}: {said}")
