"""The preparation of missing shards in processes of this machine: all of them, or one machine's part."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from sweep.data.prepare import Options, make_shard
from sweep.data.prepared import DESCRIPTION, Prepared, damage
from sweep.data.sources import KEPT, Listing
from sweep.errors import Refused
from sweep.progress import Work

_work: tuple[Listing, Prepared, Options] | None = None  # sent to each process once, not with every shard


def prepare(found: Listing, prepared: Prepared, options: Options, jobs: int, part: tuple[int, int] = (0, 1)) -> None:
    """Write the shards that are missing. `part`: (index, number) of the machines that share the work."""
    todo = [shard for shard in missing(prepared) if shard[1] % part[1] == part[0]]
    if todo:
        with (
            Work(f"{len(todo)} shards", len(todo)) as work,
            ProcessPoolExecutor(
                min(jobs, len(todo)), initializer=_receive, initargs=(found, prepared, options)
            ) as pool,
        ):
            for done, made in enumerate(as_completed([pool.submit(_make, *shard) for shard in todo]), 1):
                try:
                    made.result()
                except BrokenProcessPool:
                    raise Refused(
                        "a process was killed (out of memory?); expected to end well with fewer --jobs"
                    ) from None
                work.at(done)
    tidy(prepared)


def tidy(prepared: Prepared) -> None:
    """Delete the stored listing and temporary files of killed processes, once all shards are there."""
    if not missing(prepared):
        own = [KEPT, f".{KEPT}.*.tmp", f".{DESCRIPTION}.*.tmp", *(f".{split}-*.tmp" for split in prepared.counts)]
        for left in (path for pattern in own for path in prepared.root.glob(pattern)):
            left.unlink(missing_ok=True)


def missing(prepared: Prepared) -> list[tuple[str, int]]:
    """Return split and number of every shard that is missing or does not fit its index."""
    return [
        (split, number)
        for split, count in prepared.counts.items()
        for number in range(count)
        if damage(prepared, split, number)
    ]


def _receive(found: Listing, prepared: Prepared, options: Options) -> None:
    global _work  # noqa: PLW0603
    _work = found, prepared, options


def _make(split: str, number: int) -> None:
    assert _work
    make_shard(*_work, split, number)
