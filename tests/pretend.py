"""Stands before `lottery` in a job script, as a container would, and sleeps instead of training.

`lottery ticket FOLDER --index N …`: sleeps as long as pretend.json in FOLDER says, then leaves a result. It notes down
when and where it ran, and on which GPUs, one line each. Other commands leave what the next job needs.
"""

import json
import os
import sys
import time
from pathlib import Path


def main(command: str, folder: Path, rest: list[str]) -> None:
    told = json.loads((folder / "pretend.json").read_text())
    if command == "train":
        _leave(folder / "dense" / "seed-0" / "result.json", {"test": {"top1": 0.5}, "devices": 1})
    if command == "masks":
        _leave(folder / "masks" / "seed-0.h5", {})
    if command == "ticket":
        cell = told[int(rest[rest.index("--index") + 1])]
        began = time.time()
        time.sleep(cell["seconds"])
        line = {
            "cell": cell["slug"], "began": began, "ended": time.time(), "node": os.environ["SLURMD_NODENAME"],
            "gpus": os.environ["CUDA_VISIBLE_DEVICES"].split(","),
        }  # fmt: skip
        with open(folder / "pretended.jsonl", "a") as f:
            f.write(json.dumps(line) + "\n")
        _leave(folder / "cells" / cell["slug"] / "result.json", {"test": {"top1": 0.5}, "devices": 1})


def _leave(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


if __name__ == "__main__":
    assert sys.argv[1] == "lottery"
    main(sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
