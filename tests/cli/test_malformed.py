"""Experiment files by the hundred that no person would write: an answer or a few short lines, soon, in little memory.

Of another seed, with the CPU-seconds of the slowest: python -m tests.cli.test_malformed 1000 FOLDER SEED > lines.jsonl
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweep.experiment import file as experiment_file
from tests import synthetic

CASES = int(os.environ.get("MALFORMED_CASES", "24"))
SECONDS = 60  # of one case: a hang, not a slow machine
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**63, 10**30, 10**400, 0.5, -0.0, 1e-300, 1e308, float("nan"), float("inf"), "", "x",
    "é" * 500, "a\nb", "a\x00b", "%s %A $(touch x)", "../..", "-x", "1:30", "030", "0x1f", "1e5", "on", "~", "[", [],
    [[]], [None], [0.5] * 2000, list(range(300)), ["0", "1ep", "2it", "end"], {}, {"a": 1}, {1: 2}, {"name": "x"},
    {"epochs": {"epochs": 3}},
)  # fmt: skip
MORE = (b"\t", b"\xff\xfe", b"&a [*a]", b"<<: *a\n", b"!!python/object:os.system x", b"[" * 3000, b"9" * 5000, b": ")
WRITTEN = (  # values in YAML that no value in Python is written as
    "{[a]: b}", "{{a: b}: c}", "!!int ''", "!!timestamp foo", "!!bool 'x'", "!!float ''", "!!null x", "!!binary x",
    "!!set {a, b}", "!!omap [a: 1]", "!!pairs [a: 1]", "!!map x", "!!seq x", "!!str {a: b}", "! x", "!x!y z", "!<a> b",
    "!!python/object/apply:os.getcwd []", "- " * 20_000, "[" * 20_000, "{a: " * 20_000, "[" * 19 + "]" * 19, "&a [*a]",
    "&a {a: *a}", "*nowhere", "&a x, &a y", "{a: 1, a: 2}", "{<<: {a: 1}}", "{<<: [{a: 1}, {a: 2}]}", "{?}", "? a\n: b",
    "2024-02-30", "2024-01-01 25:61:61", "1:30.5", "=", "<<", "0o17", "0b11", "+.inf", "-.INF", ".NaN", "1e999", "٣",
    "٣:٤", "٢ep", "[magnitude/02:4]", "[magnitude/٢:٤]", "[magnitude@999999999it]", "[magnitude@400ep]", '"\\ud800"',
    '"\\0"', '"\\x85"', '"a\\nb"', "\u2028", "\ufeff", "\U0001f600", "e\u0301", "|\n  a\n  b", ">-\n  a", "'", '"',
    "%YAML 9.9", "---", "...", "--- a\n--- b", "@", "`", "#", "-", "?", ":", ",", "]", "}", "\r", "a: b: c",
    "[--dep=singleton]", "[--comment='a]", "['--a b --wrap=id']", "[--hold, --time=5]", "a b --wrap=id", "1-٢:00",
    "999999999999999:00", f"[{', '.join(map(str, range(9000)))}]", f"[{'*b, ' * 200}]", "x" * 200_000, "[-0.0, 0.0]",
    "null", "~", "yes",
)  # fmt: skip


def drawn(chance: random.Random) -> tuple[bytes, list[str]]:
    """A whole experiment with up to four things changed, in its values or in its text, and what is given besides."""
    content = yaml.safe_load(experiment_file.dump(synthetic.experiment()))
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
    lines = text.decode().splitlines()
    for _ in range(chance.choice([0, 0, 0, 1, 2])):
        i = chance.randrange(len(lines))
        lines[i] = f"{lines[i].partition(':')[0]}: {chance.choice(WRITTEN)}"
    text = "\n".join(lines).encode()
    keys = [f"{section}.{key}" for section, inside in content.items() if isinstance(inside, dict) for key in inside]
    given = [f"{chance.choice(keys or ['name'])}={chance.choice(WRITTEN)}" for _ in range(chance.choice([0, 0, 0, 1]))]
    return chance.choice([
        *[text] * 8, text[:at], text[:at] + chance.choice(MORE) + text[at:], text + text, text[::-1],
        b"base: &b {recipe: {epochs: 3}}\n<<: [" + b"*b, " * 400 + b"*b]\n",
        bytes(chance.randrange(256) for _ in range(90)), chance.choice(WRITTEN).encode(),
        "".join(chance.choice(WRITTEN) for _ in range(9)).encode(),
    ]), given  # fmt: skip


def look(count: int, folder: Path, seed: int = 3) -> None:
    """In a process of its own: what `lottery plan` makes of each, a line of JSON for every case; the first is right."""
    from lottery import cli

    def ended(*_: object) -> None:
        raise AssertionError(f"no answer within {SECONDS} s")

    warnings.filterwarnings("ignore", "Cyclopts application invoked without tokens")  # it looks for pytest
    signal.signal(signal.SIGALRM, ended)
    chance, said = random.Random(seed), sys.stdout
    words = ["lottery", "plan", str(folder / "small.yaml"), "--results", str(folder / "results")]
    for number in range(count):
        content, given = drawn(chance) if number else (experiment_file.dump(synthetic.experiment()).encode(), [])
        (folder / "small.yaml").write_bytes(content)
        sys.argv = [*words, *given]
        out, error = io.StringIO(), io.StringIO()
        began = time.process_time()
        signal.alarm(SECONDS)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
                status = cli.main()
        except BaseException as wrong:
            status, error = -1, io.StringIO(f"{type(wrong).__name__}: {wrong}")
        signal.alarm(0)
        about = Path("/proc/self/status").read_text()  # ru_maxrss would count whoever started this process
        memory = int(about.partition("VmHWM:")[2].split()[0])
        line = {"status": status, "error": error.getvalue(), "memory": memory, "content": repr(content[:3000])}
        line |= {"given": [one[:300] for one in given], "seconds": time.process_time() - began}
        said.write(json.dumps(line) + "\n")


def outcome(status: int, error: str) -> str:
    lines = error.splitlines()
    if status == 2 and 0 < len(lines) <= 21 and all(line.startswith("lottery: ") and len(line) < 300 for line in lines):
        return "refused"
    return "planned" if status == 0 else "wrong"


@pytest.mark.slow
def test_whatever_stands_in_the_file_it_is_planned_or_refused_in_short_lines(tmp_path):
    words = [sys.executable, "-m", "tests.cli.test_malformed", str(CASES), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    outcomes = {status: sum(one["status"] == status for one in found) for status in (0, 2)}
    wrong = [one for one in found if outcome(one["status"], one["error"].replace(str(tmp_path), "")) == "wrong"]
    assert not wrong, wrong[0]
    assert len(found) == CASES and found[0]["status"] == 0 and outcomes[2] > CASES / 2, outcomes
    assert max(one["memory"] for one in found) < 1_000_000  # kB
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"], "something was written"


if __name__ == "__main__":
    look(int(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
