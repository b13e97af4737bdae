"""Damaged folders of shards: the same images or one line that says what is wrong, never other images in silence."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lottery.cli import data as command
from sweep import files
from sweep.data import open_dataset
from sweep.data.listing import listing
from sweep.data.prepare import Options, make_shard, plan
from sweep.data.prepared import describe, open_prepared
from sweep.data.shards import Reader, Shards
from sweep.data.sources import Listing, Source
from sweep.data.sources import listing as listed
from sweep.errors import Refused
from sweep.experiment import Data
from tests.commands import lottery
from tests.data.shards.conftest import SIZE
from tests.images import refusal

pytestmark = pytest.mark.slow

CASES = int(os.environ.get("DAMAGE_CASES", "60"))
ODD: tuple[Any, ...] = (None, True, -1, 0, 1, 2, 99, 1.5, 1e308, "", "word", [], {}, [1], [[1]], 10**9, 10**400)


def made(source: Path, root: Path, form: str) -> Path:
    """Shards as `lottery data prepare` makes them."""
    found, options = listed(source), Options(form, SIZE, shard_bytes=40_000 if form == "raw" else 7_000)
    prepared = plan(found, root, options)
    images = {split: len(sources) for split, sources in found.splits.items()}
    describe(prepared, {"quality": 90, "seed": 0, "images": images, "images_per_shard": options.per_shard})
    for split, count in prepared.counts.items():
        for number in range(count):
            make_shard(found, prepared, options, split, number)
    return root


def opened(root: Path) -> list[tuple[bytes, int]]:
    """Every image as a training reads it, with its label, in the order of its number."""
    data, out = Data("shards", path=str(root), image_size=16), []
    listing(data)
    dataset = open_dataset(data)
    for split in (dataset.train, dataset.test):
        assert isinstance(split, Shards)
        reader, pixels = Reader(split), np.empty((SIZE, SIZE, 3), np.uint8)
        for row, label in enumerate(split.labels):
            reader.pixels(row, pixels)
            out.append((pixels.tobytes(), int(label)))
    return out


def earlier(root: Path) -> Path:
    """The same folder as earlier versions wrote it: without seals and checksums of images."""
    for path in root.glob("*-*.json"):
        content = json.loads(path.read_text())
        del content["seal"], content["crc32"]
        path.write_text(json.dumps(content) + "\n")
    described = root / "prepared.json"
    described.write_text(json.dumps(files.read_json(described), indent=1) + "\n")
    return root


def edited(path: Path, change: Callable[[Any], Any]) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps(change(content) or content) + "\n")


# ---- by hand


@pytest.fixture(params=["raw", "jpeg"])
def folder(request, source, tmp_path) -> Path:
    return made(source, tmp_path / "shards", request.param)


def test_a_name_of_images_is_the_one_that_earlier_versions_gave_them(folder):
    data = Data("shards", path=str(folder))
    now = listing(data)
    earlier(folder)
    names = []
    for split in ("train", "test"):
        digest = hashlib.sha256((folder / "prepared.json").read_bytes())
        for path in sorted(folder.glob(f"{split}-*.json")):
            digest.update(path.read_bytes())
        names.append(f"{split}-{digest.hexdigest()[:16]}")
    assert now == listing(data) == hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]


def test_shards_of_earlier_versions_are_read_and_said_to_have_no_checksums(folder, capsys):
    expected = opened(folder)
    assert command.inspect(folder, verify=True) == 0
    assert "no checksums" not in capsys.readouterr().out
    assert opened(earlier(folder)) == expected
    assert command.inspect(folder, verify=True) == 0
    shards = len([*folder.glob("*-*.json")])
    assert f"{shards} shards have no checksums of their images" in capsys.readouterr().out
    for path in folder.glob("*-*.json"):
        edited(path, lambda index: {key: value for key, value in index.items() if key != "sha256"})
    assert opened(folder) == expected and command.inspect(folder, verify=True) == 0


def test_a_flipped_bit_is_found_where_the_image_is_read(folder):
    path = open_prepared(folder).shard("train", 1)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    said = refusal(lambda: opened(folder))
    assert said.startswith(f"{path}: image at byte ") and "changed since it was written (checksum)" in said


@pytest.mark.parametrize("label", [99, 3, -1, 1.5, "1", None, 10**400])
def test_a_label_of_no_class_is_refused(folder, label):
    path = earlier(folder) / "train-00000.json"  # nothing but the label tells
    edited(path, lambda index: index["records"][0].__setitem__(2, label))
    said = refusal(lambda: opened(folder))
    assert str(path) in said and ("of no class" in said or "not whole numbers" in said)


DESCRIBED: dict[str, Callable[[Any], Any]] = {
    "a thousand million shards": lambda d: d["shards"].update(train=10**9),
    "1e9 shards": lambda d: d["shards"].update(test=1e9),
    "no shards": lambda d: d["shards"].update(train=0),
    "no train": lambda d: d["shards"].pop("train") and None,
    "no test": lambda d: d["shards"].pop("test") and None,
    "shards of a list": lambda d: d.update(shards=[1]),
    "size of a fraction": lambda d: d.update(size=32.5),
    "size of nothing": lambda d: d.update(size=0),
    "size of a mile": lambda d: d.update(size=10**9),
    "another format": lambda d: d.update(format="gif"),
    "no classes": lambda d: d.update(classes=[]),
    "classes of numbers": lambda d: d.update(classes=[1, 2, 3]),
    "a list": lambda d: [d],
}


@pytest.mark.parametrize("change", DESCRIBED.values(), ids=DESCRIBED)
def test_what_prepared_json_cannot_say_is_refused_with_its_name(folder, change):
    edited(earlier(folder) / "prepared.json", change)
    assert refusal(lambda: opened(folder)).startswith(f"{folder / 'prepared.json'}: ")
    assert "prepared.json" in refusal(lambda: command.inspect(folder))


def test_fewer_shards_in_prepared_json_than_there_are_images_are_refused(folder):
    edited(earlier(folder) / "prepared.json", lambda d: d["shards"].update(train=d["shards"]["train"] - 1))
    assert "train images in its shards, expected the 60 in prepared.json" in refusal(lambda: opened(folder))


INDEXED: dict[str, Callable[[Any], Any]] = {
    "a list of a list": lambda index: [[1]],
    "records of a number": lambda index: index.update(records=[[1]]),
    "a record more": lambda index: index["records"].append(index["records"][0]),
    "another place": lambda index: index["records"][1].__setitem__(0, 7),
    "a height of nothing": lambda index: index["records"][0].__setitem__(3, 0),
    "no name": lambda index: index["records"][0].pop() and None,
    "problems of a number": lambda index: index.update(problems=[7]),
    "no bytes": lambda index: index.pop("bytes") and None,
}


@pytest.mark.parametrize("change", INDEXED.values(), ids=INDEXED)
def test_what_an_index_cannot_say_is_refused_with_its_name(folder, change, capsys):
    path = earlier(folder) / "train-00000.json"
    edited(path, change)
    assert refusal(lambda: opened(folder)).startswith(f"{path}: ")
    assert command.inspect(folder) == 1 and f"{path}: " in capsys.readouterr().out


@pytest.mark.parametrize("harm", ["cut", "gone", "empty", "longer"])
@pytest.mark.parametrize("form", ["raw", "jpeg"])
def test_sizes_and_presence_are_looked_at_without_verify_and_preparing_again_mends_them(form, harm, source, tmp_path):
    folder, words = tmp_path / "shards", ("--format", form, "--size", SIZE, "--shard-bytes", 40_000, "--jobs", 1)
    lottery("data", "prepare", source, folder, *words)
    path = folder / f"train-00000.{form}"
    content, expected = path.read_bytes(), opened(folder)
    path.unlink()
    if harm != "gone":
        path.write_bytes({"cut": content[:-9], "empty": b"", "longer": content + b"1"}[harm])
    ended = lottery("data", "inspect", folder, check=1)
    assert f"{path}: " in ended.stdout and (harm == "gone" or f"bytes, expected {len(content)}" in ended.stdout)
    assert refusal(lambda: opened(folder)).startswith(f"{path}: ")
    lottery("data", "prepare", source, folder, *words)
    assert path.read_bytes() == content and opened(folder) == expected


def test_so_many_shards_that_nobody_could_mean_them_are_refused(tmp_path):
    many = Listing(("a",), {"train": [Source("a/x.jpg", 0)] * 100_001, "test": [Source("a/x.jpg", 0)]})
    said = refusal(lambda: plan(many, tmp_path, Options(shard_bytes=1)))
    assert said.startswith("--shard-bytes: received 1, which makes 100,001 shards; expected at most 100,000")


def test_a_copy_on_the_node_that_was_cut_off_is_copied_again(folder, tmp_path):
    from sweep.data.shards import records_of
    from sweep.data.staging import staged

    split, node = records_of(open_prepared(folder), "train"), tmp_path / "node"
    path = staged(split, node).prepared.shard("train", 0)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])  # its pages were not on the disk when the power went
    staged(split, node)
    assert path.read_bytes() == whole


# ---- by the dozen


def cut(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def flipped(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def overwritten(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    at = chance.randrange(len(content))
    path.write_bytes(content[:at] + chance.randbytes(8) + content[at + 8 :])


def emptied(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.choice([b"", b"null", b"[[1]]", b"7", b"{}", b"\xff\xfe{}", b"[" * 5000]))


def longer(path: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes() + chance.choice([b"\0", b"}", b"\n"]))


def gone(path: Path, chance: random.Random) -> None:
    path.unlink()


def a_folder(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path, chance: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def unreadable(path: Path, chance: random.Random) -> None:
    path.chmod(0)  # whoever is root reads it all the same


def swapped(path: Path, chance: random.Random) -> None:
    """With another file of its kind, or with that of the other split."""
    other = chance.choice([one for one in sorted(path.parent.glob(f"*{path.suffix}")) if one != path])
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


def both_swapped(path: Path, chance: random.Random) -> None:
    """Two shards and their indexes."""
    names = sorted({one.stem for one in path.parent.glob("train-*")})
    one, other = chance.sample(names, 2)
    for suffix in {one.suffix for one in path.parent.glob("train-*")}:
        first, second = (path.parent / f"{name}{suffix}" for name in (one, other))
        content = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)


def another_value(path: Path, chance: random.Random) -> None:
    """JSON that can be read: a key gone, or another value somewhere in it."""
    if path.suffix != ".json":
        return flipped(path, chance)
    content = json.loads(path.read_text())
    place, key = content, chance.choice(list(content))
    while isinstance(place[key], dict | list) and place[key] and chance.random() < 0.8:
        place = place[key]
        key = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
    if chance.random() < 0.2:
        del place[key]
    else:
        place[key] = chance.choice(ODD)
    path.write_text(json.dumps(content, indent=1 if path.name == "prepared.json" else None) + "\n")
    return None


WAYS = (
    cut, flipped, overwritten, emptied, longer, gone, a_folder, a_pipe, unreadable, swapped, both_swapped,
    another_value, another_value, flipped,
)  # fmt: skip


@pytest.mark.parametrize("form", ["raw", "jpeg"])
def test_whatever_is_damaged_the_images_are_the_same_or_one_line_says_why_not(form, source, tmp_path, capsys):
    whole = made(source, tmp_path / "whole", form)
    expected, chance, outcomes = opened(whole), random.Random(23), {"same": 0, "refused": 0}
    for case in range(CASES):
        folder, harm = tmp_path / str(case), WAYS[case % len(WAYS)]
        shutil.copytree(whole, folder)
        kind = chance.choice(["prepared.json", "t*-*.json", f"t*-*.{form}"])
        path = chance.choice(sorted(folder.glob(kind)))
        harm(path, chance)
        said = (case, harm.__name__, path.name)
        try:
            assert opened(folder) == expected, said
            outcomes["same"] += 1
        except Refused as error:
            outcomes["refused"] += 1
            assert "\n" not in str(error) and len(str(error)) < 500 and str(folder) in str(error), (said, error)
            try:
                assert command.inspect(folder, verify=True) == 1, said
                told = capsys.readouterr().out
                assert str(folder) in told and "every checksum" not in told, said
            except Refused as refused:
                assert "\n" not in str(refused), said
        shutil.rmtree(folder)
    assert outcomes["refused"] > CASES / 2, outcomes


@pytest.mark.parametrize("name", ["prepared.json", "train-00000.json", "test-00000.raw"])
def test_the_command_ends_with_one_line_and_2(name, source, tmp_path):
    folder = made(source, tmp_path / "shards", "raw")
    (tmp_path / "e.yaml").write_text(
        f"model: {{name: resnet8}}\ndata: {{name: shards, path: {folder}, image_size: 16}}\n"
    )
    flipped(folder / name, random.Random(1)) if name.endswith("json") else cut(folder / name, random.Random(1))
    ended = lottery("sweep", tmp_path / "e.yaml", "recipe.batch=10", "--results", tmp_path / "results", check=2)
    assert len(ended.stderr.splitlines()) == 1 and str(folder) in ended.stderr and "Traceback" not in ended.stderr
    assert not (tmp_path / "results").exists()
