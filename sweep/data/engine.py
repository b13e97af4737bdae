"""Makes the shards that are missing, in processes of this machine."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, as_completed

from sweep.data.prepare import Listing, Options, make_shard
from sweep.data.shards import Prepared
from sweep.progress import Work

_work: tuple[Listing, Prepared, Options] | None = None  # of this process: sent once, not with every shard


def prepare(found: Listing, prepared: Prepared, options: Options, jobs: int) -> None:
    todo = [
        (split, number)
        for split, count in prepared.counts.items()
        for number in sorted(set(range(count)) - set(prepared.done(split)))
    ]
    if todo:
        with (
            Work(f"{len(todo)} shards", len(todo)) as work,
            ProcessPoolExecutor(
                min(jobs, len(todo)), initializer=_receive, initargs=(found, prepared, options)
            ) as pool,
        ):
            for done, made in enumerate(as_completed([pool.submit(_make, *shard) for shard in todo]), 1):
                made.result()
                work.at(done)
    for left in prepared.root.glob(".*.tmp"):  # of a process that was killed
        left.unlink(missing_ok=True)


def _receive(found: Listing, prepared: Prepared, options: Options) -> None:
    global _work  # noqa: PLW0603
    _work = found, prepared, options


def _make(split: str, number: int) -> int:
    assert _work
    return make_shard(*_work, split, number)
