"""What this machine is, without asking TensorFlow."""

from __future__ import annotations

import os
import platform
import subprocess


def hardware() -> str:
    """
    >>> hardware() != ""
    True
    """
    return gpu_name() or f"{os.cpu_count()} cores {platform.machine()}"


def gpu_name() -> str:
    """Of the first visible GPU, as its driver calls it; empty where there is none."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return ""
    try:
        asked = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            check=False,
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.partition("\n")[0].strip() if asked.returncode == 0 else ""
