"""Running sweeps as a user does, by the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOTTERY = [sys.executable, "-m", "sweep.cli"]


def lottery(
    *words: object, check: int | None = 0, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [*LOTTERY, *map(str, words)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert check is None or done.returncode == check, done.stdout + done.stderr
    return done


def csv_of(results: Path) -> str:
    (found,) = results.glob("*/report/results.csv")
    return found.read_text()


def status_of(home: Path) -> dict[str, dict[str, Any]]:
    """What `lottery status` says of every training."""
    return {row["task"]: row for row in json.loads(lottery("status", home, "--json").stdout)}
