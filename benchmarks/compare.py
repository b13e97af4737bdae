"""This project's training step beside PyTorch's, on one GPU, in one table.

    python benchmarks/compare.py

Runs `lottery bench step` and benchmarks/pytorch_step.py one after the other, so that neither disturbs the other, at 32
and 224 pixels, and prints images per second and the ratio to each. torch must be installed; it is no dependency.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CASES = {
    32: ("mobilenet_v2_small", 128, ["eager-float32", "eager-bfloat16", "compile-bfloat16", "compile-graphs-bfloat16"]),
    224: ("mobilenet_v2", 256, ["eager-bfloat16", "compile-bfloat16"]),
}


def ours(model: str, size: int, batch: int, steps: int) -> list[dict[str, Any]]:
    words = (
        f"-m lottery bench step --model {model} --width 1 --size {size} --batch {batch} --precision bfloat16 --mask "
        f"--rounds 15 --steps {steps} --json"
    )
    return list(json.loads(_output([sys.executable, *words.split()])))


def theirs(size: int, batch: int, settings: list[str], steps: int) -> list[dict[str, Any]]:
    script = Path(__file__).with_name("pytorch_step.py")
    words = f"--size {size} --batch {batch} --steps {steps} --setting {' '.join(settings)}"
    return [json.loads(line) for line in _output([sys.executable, str(script), *words.split()]).splitlines()]


def _output(words: list[str]) -> str:
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or list(CASES)
    for size in sizes:
        model, batch, settings = CASES[size]
        steps = 50 if size <= 64 else 10
        found = ours(model, size, batch, steps)
        masked = found[0]
        print(f"\n{masked['hardware']}, MobileNetV2, {size} px, batch {batch}")
        for row in found:
            print(
                f"  lottery {row['precision']} {row['variant']:<34}{row['images_per_second']:>9.0f} images/s  "
                f"{100 * row['roofline']:.0f} % of the roofline, first step after {row['first_seconds']:.0f} s",
                flush=True,
            )
        cost = found[0]["step_ms"] / found[1]["step_ms"] - 1
        print(f"  the mask costs {100 * cost:+.2f} % of a step", flush=True)
        for row in theirs(size, batch, settings, steps):
            ratio = masked["images_per_second"] / row["images_per_second"]
            name = f"{row['what']} {row['precision']}"
            print(f"  {name:<51}{row['images_per_second']:>9.0f} images/s  ours is {ratio:.2f} x", flush=True)


if __name__ == "__main__":
    main()
