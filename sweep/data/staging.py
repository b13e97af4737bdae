"""Copies of shards on the node's own disk, made once for all tasks on the node and verified."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from sweep.data.prepared import Prepared, checksum, name_of, read_index
from sweep.data.shards import Shards
from sweep.errors import Refused
from sweep.files import write_text
from sweep.lock import alone
from sweep.progress import Work


def staged(shards: Shards, folder: Path) -> Shards:
    """Return the shards copied to `folder`. The first task on a node copies, the others wait."""
    prepared, split = shards.prepared, shards.split
    here = dataclasses.replace(prepared, root=folder / name_of(prepared, split))
    here.root.mkdir(parents=True, exist_ok=True)
    with alone(here.root / f"{split}.lock"):
        todo = [number for number in range(prepared.counts[split]) if not _there(prepared, here, split, number)]
        with Work(f"{split} shards to {folder}", max(len(todo), 1)) as work:
            for done, number in enumerate(todo, 1):
                _copy(prepared, here, split, number)
                work.at(done)
    return dataclasses.replace(shards, prepared=here)


def _there(prepared: Prepared, here: Prepared, split: str, number: int) -> bool:
    """Whether a shard is copied completely: its index exists and its size is right (a node may lose power)."""
    one, other = here.shard(split, number), prepared.shard(split, number)
    return here.index(split, number).exists() and one.exists() and one.stat().st_size == other.stat().st_size


def _copy(prepared: Prepared, here: Prepared, split: str, number: int) -> None:
    """Copy one shard, then its index: a shard without an index was not copied completely."""
    shutil.copyfile(prepared.shard(split, number), here.shard(split, number))
    if read_index(prepared, split, number)["sha256"] not in (None, checksum(here.shard(split, number))):
        raise Refused(
            f"{prepared.shard(split, number)}: its copy has another checksum; see lottery data inspect --verify"
        )
    write_text(here.index(split, number), prepared.index(split, number).read_text())


def room_for(shards: Shards, folder: Path) -> bool:
    """Whether the shards of the split fit in 90 % of the free space; copies that are there already count as free."""
    prepared = shards.prepared
    wanted = sum(prepared.shard(shards.split, n).stat().st_size for n in range(prepared.counts[shards.split]))
    already = sum(path.stat().st_size for path in (folder / name_of(prepared, shards.split)).glob(f"{shards.split}-*"))
    return wanted < 0.9 * (shutil.disk_usage(_existing(folder)).free + already)


def in_memory(folder: Path) -> bool:
    """Whether files of the folder are kept in memory (tmpfs), where SLURM counts them as memory of the job."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    kinds = {Path(at): kind for _, at, kind, *_ in mounts}  # a later mount covers an earlier one
    place = _existing(folder).resolve()
    return next(kinds[path] for path in (place, *place.parents) if path in kinds) in ("tmpfs", "ramfs")


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())
