"""Tickets as LiteRT files on an ARM processor, by emulation: which operators run sparse, and how many instructions run.

    python benchmarks/arm.py ROOT results/reference/study/masks.h5 --seed 21 --model mobilenet_v2 --size 224

An emulator's times say nothing of a processor's, so instructions are counted: those of 20 images more, over 20. The
masks are those on record, the weights random ones, on which neither operators nor instructions depend. ROOT is a
Debian for ARM with LiteRT, and QEMU emulates a Neoverse N1:

    apt-get install qemu-user debootstrap gcc
    debootstrap --foreign --arch=arm64 --variant=minbase --include=python3 bookworm ROOT
    for each in ROOT/var/cache/apt/archives/*.deb; do dpkg-deb -x $each ROOT; done
    pip download --no-deps --only-binary :all: --python-version 3.11 --platform manylinux_2_27_aarch64 \\
        --platform manylinux_2_28_aarch64 -d wheels ai-edge-litert==2.3.0 numpy
    for each in wheels/*; do unzip $each -d ROOT/site; done
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from models import Network, build
from sweep.export import lite
from sweep.export.subject import Facts, Precision, Subject, Wanted
from sweep.pruning.allocations import uniform
from sweep.pruning.masks import kernel_shapes

HERE = Path(__file__).parent
CORE = """processor\t: {core}
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""
COUNT = """
import sys
from pathlib import Path
from sweep.export.operators import SPARSE, operators
given, wanted = ([int(n) for n in one.split(",")] for one in sys.argv[2:4])
found = operators(Path(sys.argv[1]).read_bytes(), tuple(given), tuple(wanted))
print(sum(count for name, count in found.items() if SPARSE in name))
"""
INVOKE = """
import sys
from ai_edge_litert.interpreter import Interpreter
one = Interpreter(model_path=sys.argv[1], num_threads=1)
one.allocate_tensors()
for _ in range(int(sys.argv[2])):
    one.invoke()
"""


class Arm:
    """Python on an emulated ARM processor, with LiteRT and this project's modules that need nothing else."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.plugin = root.resolve(), folder / "instructions.so"
        (self.root / "proc").mkdir(exist_ok=True)
        # LiteRT looks there for what the processor can do, and would find that of this machine
        (self.root / "proc" / "cpuinfo").write_text("".join(CORE.format(core=core) for core in range(2)))
        source = HERE / "instructions.c"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", self.plugin, source], check=True)

    def said(self, code: str, *words: object, options: tuple[str, ...] = ()) -> list[str]:
        """Return the lines that a program prints there, to either stream."""
        path = f"PYTHONPATH={self.root / 'site'}:{HERE.parent}"
        command = ["qemu-aarch64", "-cpu", "neoverse-n1", *options, "-L", self.root, "-E", path,
                   self.root / "usr/bin/python3.11", "-c", code, *map(str, words)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return [*done.stderr.splitlines(), *done.stdout.splitlines()]

    def sparse_operators(self, path: Path, network: Network) -> int:
        given = f"1,{network.image_size},{network.image_size},{network.channels}"
        return int(self.said(COUNT, path, given, f"1,{network.classes}")[-1])

    def instructions(self, path: Path) -> int:
        """Return the instructions of one inference."""
        few, many = (self._executed(path, times) for times in (1, 21))
        return (many - few) // 20  # what a start takes varies by millions

    def _executed(self, path: Path, times: int) -> int:
        lines = self.said(INVOKE, path, times, options=("-plugin", str(self.plugin)))
        return next(int(line.split()[1]) for line in lines if line.startswith("instructions "))


def masks(network: Network, path: Path, seed: int, uniformly: list[float]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the masks on record that were found in a dense run, and random ones with as much left of every kernel."""
    with h5py.File(path) as file:
        for name in sorted(file):
            if f"-of-dense-seed{seed}-" in name:
                yield name.partition("-of-")[0], np.unpackbits(file[name]["mask"][()])[: network.prunable].astype(bool)
    for quantile in uniformly:
        scores = np.random.default_rng(seed).random(network.prunable)
        yield f"uniform, random, q{quantile:g}", uniform(scores, kernel_shapes(network), quantile)


def subject(network: Network, mask: np.ndarray) -> Subject:
    weights = network.initial(0)
    facts = Facts("", "", network.name, network.image_size, 3, 0.0, [], [1 / 255] * 3, [0.0] * 3, float(mask.mean()),
                  0.0, None, "probabilities", False, "")  # fmt: skip
    return Subject(network, weights._replace(kernels=weights.kernels * mask), facts)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("root", type=Path)
    words.add_argument("masks", type=Path)
    words.add_argument("--seed", type=int, default=21, help="seed of the dense run whose masks are taken")
    words.add_argument(
        "--model", default="mobilenet_v2_small", help="network of the masks, or one with the same kernels"
    )
    words.add_argument("--size", type=int, default=32)
    words.add_argument("--uniform", type=float, nargs="*", default=[], help="shares to prune in every kernel alike")
    given = words.parse_args()
    network = build(given.model, image_size=given.size, channels=3, classes=10)
    whole = np.ones(network.prunable, bool)
    samples = np.random.default_rng(0).integers(0, 256, (20, given.size, given.size, 3), np.uint8)
    files: list[tuple[str, np.ndarray, Precision, bool]] = [("dense", whole, "float32", False)]
    files += [("dense int8", whole, "int8", False)]
    found = masks(network, given.masks, given.seed, given.uniform)
    files += [(name, mask, "float32", True) for name, mask in found]
    print("| mask | remaining | MB | sparse operators | million instructions | of dense |\n|---|---|---|---|---|---|")
    dense = 0
    with tempfile.TemporaryDirectory() as folder:
        arm, path = Arm(given.root, Path(folder)), Path(folder) / "ticket.tflite"
        for name, mask, precision, sparse in files:
            model = lite.converted(subject(network, mask), Wanted(precision, sparse, False, False, samples))
            path.write_bytes(model)
            ran = "–" if precision == "int8" else arm.sparse_operators(path, network)
            count = arm.instructions(path)
            dense = dense or count
            print(f"| {name} | {mask.mean():.0%} | {len(model) / 1e6:.2f} | {ran} | {count / 1e6:.2f} | "
                  f"{count / dense:.2f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
