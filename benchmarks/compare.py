"""This project's training step beside PyTorch's, on one GPU, in one table.

    python benchmarks/compare.py 32          # MobileNetV2 at 32 px
    python benchmarks/compare.py 224         # MobileNetV2 at 224 px
    python benchmarks/compare.py resnet50    # or resnet18, at 224 px

Runs `lottery bench step` and every mode of benchmarks/pytorch_step.py in turns, ours, theirs, ours, theirs, so that
neither disturbs the other and both meet the same clocks; a case takes less than ten minutes on an H200. Prints images
per second of each turn, and the ratio to the fastest mode. torch must be installed; it is no dependency.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

BFLOAT16 = ["eager-bfloat16", "compile-bfloat16", "compile-graphs-bfloat16"]
CASES = {  # network here, network there, pixels, batch, modes there
    "32": ("mobilenet_v2_small", "mobilenet_v2", 32, 128, ["eager-float32", *BFLOAT16]),
    "224": ("mobilenet_v2", "mobilenet_v2", 224, 256, BFLOAT16),
    "resnet18": ("resnet18", "resnet18", 224, 256, BFLOAT16),
    "resnet50": ("resnet50", "resnet50", 224, 256, BFLOAT16),
}
TURNS = 2


def ours(model: str, size: int, batch: int, steps: int) -> list[dict[str, Any]]:
    words = (
        f"-m lottery bench step --model {model} --width 1 --size {size} --batch {batch} --precision bfloat16 --mask "
        f"--rounds 15 --steps {steps} --json"
    )
    return list(json.loads(_output([sys.executable, *words.split()])))


def theirs(network: str, size: int, batch: int, settings: list[str], steps: int) -> list[dict[str, Any]]:
    script = Path(__file__).with_name("pytorch_step.py")
    words = f"--network {network} --size {size} --batch {batch} --steps {steps} --setting {' '.join(settings)}"
    return [json.loads(line) for line in _output([sys.executable, str(script), *words.split()]).splitlines()]


def _output(words: list[str]) -> str:
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    for case in sys.argv[1:] or CASES:
        model, network, size, batch, settings = CASES[case]
        steps = 50 if size <= 64 else 10
        speeds: dict[str, list[float]] = {}
        for _ in range(TURNS):
            for row in [*ours(model, size, batch, steps), *theirs(network, size, batch, settings, steps)]:
                name = f"{row.get('what', 'lottery')} {row['precision']} {row.get('variant', '')}".strip()
                speeds.setdefault(name, []).append(row["images_per_second"])
                print(f"  {name:<51}{row['images_per_second']:>9.0f} images/s", flush=True)
        print(f"\n{row['hardware']}, {model}, {size} px, batch {batch}, means of {TURNS} turns")
        means = {name: mean(each) for name, each in speeds.items()}
        masked, unmasked, *others = means
        for name in others:
            print(f"  {name:<51}{means[name]:>9.0f} images/s  ours is {means[masked] / means[name]:.2f} x")
        best = max(others, key=lambda name: means[name])
        print(f"  ours: {means[masked]:.0f} images/s, {means[masked] / means[best]:.2f} x the fastest ({best}); "
              f"the mask costs {100 * (means[unmasked] / means[masked] - 1):+.2f} % of a step")  # fmt: skip


if __name__ == "__main__":
    main()
