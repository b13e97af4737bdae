"""Stands before `lottery` in a job script, as a container would, and sleeps instead of training.

`lottery train FOLDER NAME …`: sleeps as long as sleep.json in FOLDER says, then leaves a result; one by one. It notes
down when and where it ran, and on which GPUs, one line each. Of the masks it leaves the files.
"""

import json
import os
import sys
import time
from pathlib import Path


def main(command: str, folder: Path, rest: list[str]) -> None:
    asked = json.loads((folder / "sleep.json").read_text())
    names = rest[: rest.index("--restarts")] if command == "train" else []
    for name in names:
        result = folder.parent / "trainings" / name / "result.json"
        if result.exists():
            continue
        began = time.time()
        time.sleep(asked["seconds"].get(name, 0.0))
        line = {
            "cell": name.rpartition("-")[0], "began": began, "ended": time.time(),
            "node": os.environ["SLURMD_NODENAME"], "gpus": os.environ["CUDA_VISIBLE_DEVICES"].split(","),
        }  # fmt: skip
        if name in asked["seconds"]:
            with open(folder / "slept.jsonl", "a") as f:
                f.write(json.dumps(line) + "\n")
        found = {
            "test": {"top1": 0.5, "top5": 0.9, "loss": 1.0},
            "validation": {},
            "devices": 1,
            "steps_per_epoch": 100,
        }
        _leave(result.parent / "snapshots" / "final.h5", {})
        _leave(result, found)
    if command == "masks":
        for path in asked["masks"]:
            _leave(Path(path), {})


def _leave(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


if __name__ == "__main__":
    assert sys.argv[1] == "lottery"
    main(sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
