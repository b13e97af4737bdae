"""Damaged results by the hundred: one line or none, never a traceback, and nothing that could be taken for a result."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweep.errors import Refused
from sweep.experiment.file import load
from sweep.graph.home import Home, open_home
from sweep.graph.results import collect
from sweep.graph.state import states
from tests import synthetic
from tests.commands import listening

CASES = int(os.environ.get("DAMAGE_CASES", "20"))
FLIPS = int(os.environ.get("DAMAGE_FLIPS", "12"))  # bits of every kind of file
SEED = int(os.environ.get("DAMAGE_SEED", "17"))
LOOKS = (("status", "small"), ("plan", "small"), ("report", "small", "--json"), ("tidy",))
ODD: tuple[Any, ...] = (None, True, -1, 1e308, "", "word", [], {}, [1], {"a": 1}, "NaN", float("nan"), 10**400)


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Cut off, overwritten, not UTF-8, emptied; or JSON of another shape: a key gone, one more, another value."""
    way = chance.randrange(8)
    if way == 0:
        return content[: chance.randrange(len(content))]
    if way == 1:
        at = chance.randrange(len(content))
        return content[:at] + bytes(chance.randrange(256) for _ in range(8)) + content[at + 8 :]
    if way == 2:
        return b"[" * 5000
    if way == 3:
        return chance.choice([b"", b"null", b"[]", b"7", b'"text"', b"{}", b"\xff\xfe{}"])
    lines = content.decode().splitlines()
    try:  # a line of a .jsonl, or the whole
        one = len(lines) > 1 and not content.startswith(b"{\n")
        at = chance.randrange(len(lines)) if one else 0
        value = json.loads(lines[at] if one else content)
    except ValueError:
        return content[::-1]
    place, key = value, chance.choice(list(value))
    if isinstance(value[key], dict) and value[key] and chance.random() < 0.5:
        place, key = value[key], chance.choice(list(value[key]))
    if way == 4:
        del place[key]
    elif way == 5:
        place["from a later version"] = chance.choice(ODD)
    else:
        place[key] = chance.choice(ODD)
    text = json.dumps(value)
    return "\n".join([*lines[:at], text, *lines[at + 1 :], ""]).encode() if one else text.encode()


@pytest.fixture
def whole(unfinished):
    """A sweep with something of every kind of file, one job on record among them; without a SLURM to ask."""
    dense = unfinished.folder_of("dense-seed0")
    claim = {"owner": "a", "starts": 1, "idle_starts": 1, "reached": "", "began": 0.0, "host": "h", "pid": 1, "job": ""}
    synthetic.files.write_json(dense / "claim.json", claim)
    skipped = {"task": "ticket-q0.9-k2ep-seed0", "reason": "1 layer fully pruned (stem)"}
    synthetic.files.write_json(unfinished.folder_of(skipped["task"]) / "skipped.json", skipped)
    line = {"id": "1", "experiment": "small", "part": "cells", "at": 0.0, "indices": [0],
            "tasks": [unfinished.training("ticket-q0.5-k0-seed0").name]}  # fmt: skip
    synthetic.files.append_line(unfinished.pool / "slurm" / "jobs.jsonl", line)
    return unfinished


@pytest.mark.slow
def test_whatever_is_damaged_every_look_ends_with_one_line_or_none(whole, lottery, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    files = [path for path in sorted(whole.pool.rglob("*")) if path.suffix in (".json", ".jsonl", ".yaml")]
    assert {path.name for path in files} >= {
        "result.json", "failure.json", "skipped.json", "claim.json", "metrics.jsonl", "jobs.jsonl", "experiment.yaml",
    }  # fmt: skip
    chance, outcomes = random.Random(SEED), dict[int, int]()
    for case in range(CASES):
        path, words = chance.choice(files), LOOKS[case % len(LOOKS)]
        content = path.read_bytes()
        path.write_bytes(damaged(content, chance))
        status, said, error = lottery(*words)
        outcomes[status] = outcomes.get(status, 0) + 1
        assert status in (0, 2), (path, path.read_bytes()[:300], said, error)
        assert status == 0 or (len(error.splitlines()) == 1 and len(error) < 400), error
        if status == 0 and words[0] == "report":
            accuracies = [row["test_top1"] for row in json.loads(said)]
            assert all(one is None or 0 <= one <= 1 for one in accuracies), path
        path.write_bytes(content)
    assert min(outcomes[0], outcomes[2]) > CASES / 10, outcomes  # both happen: neither is taken for the other


@pytest.mark.slow
def test_a_flipped_bit_in_any_file_changes_no_row_in_silence(whole):
    """What a training leaves is sealed: a row of results.csv is as it was, or the file is refused by name."""
    chance, before = random.Random(SEED), collect(whole)
    kinds = {path.name: path for path in sorted(whole.pool.rglob("*")) if path.suffix in (".json", ".jsonl", ".yaml")}
    noticed = 0
    for path in kinds.values():
        content = path.read_bytes()
        for _ in range(FLIPS):
            place = chance.randrange(len(content))
            path.write_bytes(
                content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]
            )
            try:
                experiment = load(whole.root / "experiment.yaml")
                rows = collect(Home(whole.root, experiment))
                states(whole)
                assert rows == before, (path.name, place)
            except Refused as error:
                noticed += 1
                assert "\n" not in str(error) and path.name in str(error), error
        path.write_bytes(content)
    assert noticed > len(kinds) * FLIPS / 2


def test_a_linked_training_is_unlinked_and_the_rest_is_tidied_too(home, lottery):
    for training in home.graph:
        synthetic.finish(home, training.slug, 0.5)
    elsewhere = home.pool.parent / "elsewhere"
    first, *_ = sorted(home.folder(one) for one in home.graph if "q0.9" in one.slug)
    first.rename(elsewhere)
    first.symlink_to(elsewhere)
    open_home(synthetic.experiment(quantiles=(0.5,)), home.root)
    status, said, error = lottery("tidy", "--delete")
    assert (status, error) == (0, "") and "deleted: 2" in said
    assert (elsewhere / "result.json").exists() and not list(home.pool.glob("trainings/*q0.9*"))


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_signal_outside_of_a_training_ends_the_command_with_130_and_no_traceback(number, here):
    """A closed terminal as Ctrl-C; while a training runs it is asked to save itself instead."""
    lines = [
        "import os, sys; from lottery import cli; from lottery.cli import show",
        "sys.argv[1:] = ['status', 'small.yaml']",
        f"show.read_home = lambda *_: os.kill(os.getpid(), {int(number)})",
        "sys.exit(cli.main())",
    ]
    words = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, preexec_fn=listening)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", ""), done


def test_a_folder_with_a_command_in_its_name_is_quoted_where_it_is_said(here, lottery):
    home = open_home(synthetic.experiment(), here / "a $(touch b)" / "small")
    synthetic.finish(home, "dense-seed0", 0.75)
    _, said, _ = lottery("report", str(home.root))
    assert f"lottery status '{home.root}'" in said.replace("\n", " "), said


def test_whoever_stops_reading_ends_it_quietly(unfinished):
    words = f"{sys.executable} -m lottery status small --json | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", words], cwd=unfinished.pool.parent, capture_output=True,
                          text=True, check=False, env=os.environ | {"PYTHONPATH": str(Path.cwd())})  # fmt: skip
    assert (len(done.stdout), done.stderr) == (10, "") and done.returncode in (0, 141)
