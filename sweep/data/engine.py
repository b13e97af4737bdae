"""Makes the shards that are missing, in processes of this machine: all of them, or one machine's part of several."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, as_completed

from sweep.data.prepare import Options, make_shard
from sweep.data.shards import Prepared
from sweep.data.sources import Listing
from sweep.progress import Work

_work: tuple[Listing, Prepared, Options] | None = None  # of this process: sent once, not with every shard


def prepare(found: Listing, prepared: Prepared, options: Options, jobs: int, part: tuple[int, int] = (0, 1)) -> None:
    """`part`: (number, of how many) machines that share the work."""
    todo = [shard for shard in missing(prepared) if shard[1] % part[1] == part[0]]
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
    tidy(prepared)


def tidy(prepared: Prepared) -> None:
    """Once all is there: away with what killed processes left, and with the listing."""
    if not missing(prepared):
        for left in prepared.root.glob(".*"):
            left.unlink(missing_ok=True)


def missing(prepared: Prepared) -> list[tuple[str, int]]:
    """Shards that are not there yet: split and number."""
    return [
        (split, number)
        for split, count in prepared.counts.items()
        for number in sorted(set(range(count)) - set(prepared.done(split)))
    ]


def _receive(found: Listing, prepared: Prepared, options: Options) -> None:
    global _work  # noqa: PLW0603
    _work = found, prepared, options


def _make(split: str, number: int) -> int:
    assert _work
    return make_shard(*_work, split, number)
