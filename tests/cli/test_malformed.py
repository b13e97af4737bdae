"""Experiment files by the hundred that no person would write: an answer or one short line, soon, in little memory."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweep.experiment import file as experiment_file
from tests import made_up

CASES = int(os.environ.get("MALFORMED_CASES", "24"))
SECONDS = 60  # of one case: a hang, not a slow machine
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**63, 10**30, 10**400, 0.5, -0.0, 1e-300, 1e308, float("nan"), float("inf"), "", "x",
    "é" * 500, "a\nb", "a\x00b", "%s %A $(touch x)", "../..", "-x", "1:30", "030", "0x1f", "1e5", "on", "~", "[", [],
    [[]], [None], [0.5] * 2000, list(range(300)), ["0", "1ep", "2it", "end"], {}, {"a": 1}, {1: 2}, {"name": "x"},
    {"epochs": {"epochs": 3}},
)  # fmt: skip
MORE = (b"\t", b"\xff\xfe", b"&a [*a]", b"<<: *a\n", b"!!python/object:os.system x", b"[" * 3000, b"9" * 5000, b": ")


def drawn(chance: random.Random) -> bytes:
    """A whole experiment with up to four things changed, in its values or in its text."""
    content = yaml.safe_load(experiment_file.dump(made_up.experiment()))
    for _ in range(chance.randrange(4)):
        place = content
        while True:
            key = chance.choice([*place, "another"]) if isinstance(place, dict) else chance.randrange(len(place))
            inside = place.get(key) if isinstance(place, dict) else place[key]
            if not (isinstance(inside, dict | list) and inside and chance.random() < 0.8):
                break
            place = inside
        if isinstance(place, dict) and chance.random() < 0.2:
            place.pop(key, None)
        else:
            place[key] = chance.choice(ODD)
    text = yaml.safe_dump(content, allow_unicode=True).encode()
    at = chance.randrange(len(text))
    return chance.choice([
        text, text, text, text[:at], text[:at] + chance.choice(MORE) + text[at:], text + text, text[::-1],
        b"base: &b {recipe: {epochs: 3}}\n<<: [" + b"*b, " * 400 + b"*b]\n",
        bytes(chance.randrange(256) for _ in range(90)),
    ])  # fmt: skip


def look(count: int, folder: Path) -> None:
    """In a process of its own: what `lottery plan` makes of each, a line of JSON for every case."""
    from sweep import cli

    def ended(*_: object) -> None:
        raise AssertionError(f"no answer within {SECONDS} s")

    warnings.filterwarnings("ignore", "Cyclopts application invoked without tokens")  # it looks for pytest
    signal.signal(signal.SIGALRM, ended)
    chance, said = random.Random(3), sys.stdout
    sys.argv = ["lottery", "plan", str(folder / "small.yaml"), "--results", str(folder / "results")]
    for _ in range(count):
        content = drawn(chance)
        (folder / "small.yaml").write_bytes(content)
        out, error = io.StringIO(), io.StringIO()
        signal.alarm(SECONDS)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
                status = cli.main()
        except BaseException as wrong:
            status, error = -1, io.StringIO(f"{type(wrong).__name__}: {wrong}")
        signal.alarm(0)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        line = {"status": status, "error": error.getvalue(), "memory": memory, "content": repr(content[:3000])}
        said.write(json.dumps(line) + "\n")


def outcome(status: int, error: str) -> str:
    if status == 2 and error.count("\n") == 1 and len(error) < 300:
        return "refused"
    return "planned" if status == 0 else "wrong"


@pytest.mark.slow
def test_whatever_stands_in_the_file_it_is_planned_or_refused_in_one_short_line(tmp_path):
    words = [sys.executable, "-m", "tests.cli.test_malformed", str(CASES), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    outcomes = {status: sum(one["status"] == status for one in found) for status in (0, 2)}
    wrong = [one for one in found if outcome(one["status"], one["error"].replace(str(tmp_path), "")) == "wrong"]
    assert not wrong, wrong[0]
    assert len(found) == CASES and min(outcomes.values()) > CASES / 20, outcomes  # neither is taken for the other
    assert max(one["memory"] for one in found) < 1_000_000  # kB
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"], "something was written"


if __name__ == "__main__":
    look(int(sys.argv[1]), Path(sys.argv[2]))
