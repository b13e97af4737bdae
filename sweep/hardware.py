"""What this machine is, without asking TensorFlow."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

UNKNOWN = "not installed"  # in place of a version


def hardware() -> str:
    """Return the name of the GPU, or the number and kind of CPU cores.

    >>> hardware() != ""
    True
    """
    return gpu_name() or f"{os.cpu_count()} cores {platform.machine()}"


def gpu_name() -> str:
    """Return the driver's name of the first visible GPU, or ""."""
    return _asked("name").partition("\n")[0].strip()


def gpu_memory() -> int:
    """Return the bytes of memory of the smallest visible GPU; 0 without one, or if it is not known."""
    said = [line.split()[0] for line in _asked("memory.total").splitlines() if line.strip()]
    parted = any(name.startswith("MIG") for name in visible_gpus())  # the driver tells the memory of the whole card
    return min(int(words) << 20 for words in said) if said and not parted and all(map(str.isdigit, said)) else 0


def visible_gpus() -> list[str]:
    """Return the GPUs this process may use, as CUDA_VISIBLE_DEVICES names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name not in ("", "-1")]
    return [str(i) for i in range(len(list(Path("/proc/driver/nvidia/gpus").glob("*"))))]


def gpu_ids() -> list[str]:
    """Return the UUIDs of the GPUs this process may use: numbers start at 0 in every job."""
    names = visible_gpus()
    known = [line.strip() for line in _asked("uuid").splitlines()] if names else []
    return [known[int(name)] if name.isdigit() and int(name) < len(known) else name for name in map(str.strip, names)]


def circumstances() -> dict[str, str]:
    """Return date, hardware and software versions, which are written with every result."""
    return {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "hardware": hardware(),
            "driver": _asked("driver_version").partition("\n")[0].strip(), "tensorflow": version_of("tensorflow"),
            "version": version_of("lottery-sweep"), "commit": commit()}  # fmt: skip


@cache
def commit() -> str:
    """Return the commit of this checkout, with `-dirty` if it was changed; for a copy, the text of its file COMMIT."""
    here = Path(__file__).parents[1]
    if not (here / ".git").exists():
        noted = here / "COMMIT"
        return noted.read_text().strip() if noted.is_file() else ""
    return _said_by("git", "-C", str(here), "describe", "--always", "--dirty", "--exclude=*").strip()


def version_of(package: str) -> str:
    """Return the version of a package, or UNKNOWN, so that code that was only copied works too."""
    try:
        return version(package)
    except PackageNotFoundError:
        return UNKNOWN


def _asked(field: str) -> str:
    """Return a field of every GPU from its driver, a line each; "" without a GPU."""
    return _driver(field, os.environ.get("CUDA_VISIBLE_DEVICES"))


@cache
def _driver(field: str, visible: str | None) -> str:
    return "" if visible in ("", "-1") else _said_by("nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader")


def _said_by(*words: str) -> str:
    """Return the output of a program; "" if it does not exist, fails or hangs."""
    try:
        asked = subprocess.run(words, check=False, capture_output=True, text=True, timeout=30)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout if asked.returncode == 0 else ""
