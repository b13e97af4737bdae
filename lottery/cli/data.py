"""The commands `lottery data …`: images prepared for training."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.table import Table

from lottery.cli.find import Json, print_json
from lottery.cli.say import NAMED
from slurm import launch, sbatch
from sweep.data import engine, spark
from sweep.data.prepare import SHARD_BYTES, Options, plan
from sweep.data.prepared import LARGEST_SIZE, Prepared, damage, describe, open_prepared, read_index
from sweep.data.shards import records_of
from sweep.data.sheet import contact_sheet
from sweep.data.sources import FORMATS, keep_listing, kept_listing
from sweep.errors import Refused
from sweep.experiment import Cluster
from sweep.experiment import file as experiment_file
from sweep.files import write_text
from sweep.progress import console, show

MOST_JOBS = 1024
PROBLEMS = "problems.txt"

app = App(name="data", help="Prepare images once, look at what was prepared.", group_commands="Commands")


@app.command
def prepare(
    source: Annotated[Path, Parameter(help="Class folders or tar files")],
    dest: Annotated[Path, Parameter(help="Folder for the shards")],
    *,
    format: Annotated[Literal["jpeg", "raw"], Parameter(help="Compressed images, or their pixels")] = "jpeg",
    size: Annotated[int, Parameter(help="Pixels of an image's side in the shards")] = 256,
    quality: Annotated[int, Parameter(help="JPEG quality, 1 to 95")] = 90,
    seed: Annotated[int, Parameter(help="Seed of the shuffle")] = 0,
    shard_bytes: Annotated[int, Parameter(help="Approximate size of a shard")] = SHARD_BYTES,
    jobs: Annotated[int, Parameter(help="Processes; 0 = one per core")] = 0,
    on: Annotated[
        Literal["local", "slurm", "spark"], Parameter(help="Where: here, a job array, Apache Spark")
    ] = "local",
    cluster: Annotated[
        Path | None, Parameter(help="With --on slurm: an experiment file with its cluster: section")
    ] = None,
    part: Annotated[str, Parameter(help="Only this machine's part, such as 3/20 (an array task's)")] = "",
    strict: Annotated[bool, Parameter(help="Exit with status 1 if an image was lost")] = False,
) -> int:
    """Pack images from class folders or tar files into shards. Run again to continue: finished shards are kept.

    SOURCE has train/CLASS/*.JPEG and val/CLASS/*.JPEG, or both as tar files, or ImageNet's own tar files and devkit; or
    it is CIFAR-10's archive.
    Example: lottery data prepare imagenet shards --format jpeg
    """
    for ok, name, value, right in (
        (1 <= size <= LARGEST_SIZE, "--size", size, f"pixels, 1 to {LARGEST_SIZE}"),
        (1 <= quality <= 95, "--quality", quality, "1 to 95"),
        (shard_bytes > 0, "--shard-bytes", shard_bytes, "more than 0"),
        (seed >= 0, "--seed", seed, "0 or more"),
        (0 <= jobs <= MOST_JOBS, "--jobs", jobs, f"0 (one per core) to {MOST_JOBS}"),
    ):
        if not ok:
            raise Refused(f"{name}: received {value}, expected {right}")
    if not source.exists():
        raise Refused(
            f"{source}: nothing there; expected a folder with train/ and val/ or their tar files, or CIFAR-10's archive"
        )
    number, of = _part(part)
    if part and on != "local":
        raise Refused(f"--part: received {part} with --on {on}, expected it alone: it is what an array task is given")
    where = experiment_file.load(cluster).cluster if cluster else Cluster()
    options = Options(format, size, quality, seed, shard_bytes)
    found = kept_listing(source, dest)
    made = plan(found, dest, options)
    images = {split: len(sources) for split, sources in found.splits.items()}
    describe(made, {"quality": quality, "seed": seed, "images": images, "images_per_shard": options.per_shard})
    if engine.missing(made):
        keep_listing(found, source, dest)
    if on == "slurm":
        words = ["data", "prepare", source.resolve(), dest.resolve(), "--format", format, "--size", size, "--quality",
                 quality, "--seed", seed, "--shard-bytes", shard_bytes]  # fmt: skip
        return _submit([str(word) for word in words], made, where, strict)
    jobs = jobs or os.cpu_count() or 1
    if on == "spark":
        spark.prepare(found, made, options, jobs)
    else:
        engine.prepare(found, made, options, jobs, (number, of))
    return 0 if part else _told(made, found.left_out, strict)


def _part(text: str) -> tuple[int, int]:
    """Return the two numbers of --part.

    >>> _part("3/20"), _part("")
    ((3, 20), (0, 1))
    """
    number, _, of = text.partition("/")
    if text and not (re.fullmatch(r"[0-9]{1,9}/[0-9]{1,9}", text) and int(number) < int(of)):
        raise Refused(f"--part: received {text!r}, expected a number under how many there are, such as 3/20")
    return (int(number), int(of)) if text else (0, 1)


def _submit(words: list[str], made: Prepared, cluster: Cluster, strict: bool) -> int:
    """Submit a job array that makes the shards, and a job after it that reports the outcome."""
    parts = min(len(engine.missing(made)), cluster.nodes)
    if not parts:
        console.print("nothing to submit: all shards are there")
        return 0
    folder = made.root.resolve()
    making, telling = sbatch.preparing(cluster, folder, words, parts, strict)
    sbatch.write_scripts(folder, (making, telling))
    first = launch.submit(making, folder)
    last = launch.submit(telling, folder, sbatch.clause([("afterany", [first])]))
    console.print(f"job {first}: {parts} parts\njob {last}: what came of it, in {telling.log}")
    return 0


def _told(made: Prepared, left_out: tuple[str, ...], strict: bool) -> int:
    """Print the outcome: images kept, lost, repaired and not read; return the exit status."""
    kept, problems = 0, list[list[str]]()
    for split in made.counts:
        for number in made.done(split):
            index = read_index(made, split, number)
            kept += len(index["records"])
            problems += index["problems"]
    lost = [name for name, what in problems if what.startswith("lost")]
    console.print(f"{kept} images of {len(made.classes)} classes in {sum(made.counts.values())} shards: {made.root}")
    path, lines = made.root / PROBLEMS, [*problems, *([name, "left out"] for name in left_out)]
    if lines:
        write_text(path, "".join(f"{name}: {what}\n" for name, what in sorted(lines)))
    if problems:
        console.print(
            f"WARNING: {len(lost)} images were lost and {len(problems) - len(lost)} repaired; {path} lists them"
        )
    if left_out:
        named = ", ".join(left_out[:3]) + (", …" if len(left_out) > 3 else "")
        console.print(f"not read, {len(left_out)}: {named} (expected {', '.join(sorted(FORMATS))} directly in class "
                      f"folders); {path} lists them")  # fmt: skip
    return 1 if lost and strict else 0


@app.command
def inspect(
    dest: Annotated[Path, Parameter(help="A folder of shards")],
    *,
    sheet: Annotated[Path | None, Parameter(help="Write a picture of some images of every class here (PNG)")] = None,
    verify: Annotated[bool, Parameter(help="Read everything and compare checksums")] = False,
    json_: Json = False,
) -> int:
    """Show what is in a folder of shards: counts, problems, what is missing. With --verify, compare all checksums.

    Example: lottery data inspect shards --verify --sheet sheet.png
    """
    made = open_prepared(dest)
    rows, broken = list[dict[str, Any]](), list[tuple[Path, str]]()
    for split, count in made.counts.items():
        wrong = {number: what for number in range(count) if (what := damage(made, split, number, verify))}
        broken += [(made.shard(split, number), what) for number, what in wrong.items()]
        indices = [read_index(made, split, number) for number in range(count) if number not in wrong]
        labels = Counter(record[2] for index in indices for record in index["records"])
        per_class = [labels[label] for label in range(len(made.classes))]
        rows.append(
            {
                "split": split,
                "images": sum(per_class),
                "shards": len(indices),
                "shards missing": count - len(made.done(split)),
                "shards without checksums": sum(None in (index["sha256"], index["crc32"]) for index in indices),
                "bytes": sum(index["bytes"] for index in indices),
                "fewest in a class": min(per_class, default=0),
                "most in a class": max(per_class, default=0),
                "problems": sum(len(index["problems"]) for index in indices),
                "per class": dict(zip(made.classes, per_class, strict=True)),
            }
        )
    if sheet and not broken:
        contact_sheet(records_of(made, "train"), sheet)
    if json_:
        print_json({"format": made.format, "size": made.size, "splits": rows,
                    "broken": [[str(path), what] for path, what in broken]})  # fmt: skip
        return 1 if broken else 0
    names = [name for name in rows[0] if name != "per class"]
    table = Table(*names, title=f"{made.root}: {made.format}, {made.size} px, {len(made.classes)} classes")
    for row in rows:
        table.add_row(*(str(row[name]) for name in names))
    show(table)
    for _, what in broken[:NAMED]:
        console.print(what)
    if len(broken) > NAMED:
        console.print(f"and {len(broken) - NAMED} more; --json lists all")
    if bare := sum(row["shards without checksums"] for row in rows):
        console.print(
            f"{bare} shards have no checksums of their images: an earlier version made them, and what changes in them "
            "is not seen while training; lottery data prepare into another folder makes such that have"
        )
    if (made.root / PROBLEMS).exists():
        console.print(f"{made.root / PROBLEMS} lists what was lost, repaired or left out")
    if verify and not broken:
        console.print("every checksum is the one that was written")
    if sheet and broken:
        console.print(f"{sheet} was not made: expected shards that are whole")
    return 1 if broken else 0
