"""What the steps of a training are given, and when: the inputs of their epoch, their images, their place in the queue.

The next epoch's inputs are drawn and its first images read before an epoch ends, and a step is handed over while the
device computes the ones before, so that it need not wait for the host.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import chain, repeat, tee
from typing import Any

from sweep.data.feed import Feed
from sweep.data.resident import Resident
from sweep.training.program import Program
from sweep.training.schedule import Epoch


def stream(
    program: Program, epoch: Epoch, steps: range, batches: Iterator[Any], enough: Callable[[], bool] = lambda: False
) -> tuple[int, float]:
    """Train these steps, fewer if it is `enough`; return the next step and the seconds in which the device was idle.

    A step is put into the device's queue as soon as its images are there, while the device computes the ones before.
    """

    def computed() -> float:
        program.take_sums()  # waits for the device
        return time.monotonic()

    step, idle = steps.start, 0.0
    with ThreadPoolExecutor(1) as watching:
        idle_since = watching.submit(time.monotonic)
        for step in steps:
            batch = next(batches)
            given = time.monotonic()
            program.run(epoch, step, step + 1, batch)
            if program.devices.kind == "GPU":
                given = time.monotonic()  # the step is in the queue now; a CPU has computed it
            if idle_since.done():
                idle += max(0.0, given - idle_since.result())
            idle_since = watching.submit(computed)
            if enough():
                break
        idle_since.result()
    return step + 1, idle


def drawn_ahead(draw: Callable[[int], Epoch], numbers: range) -> Iterator[Epoch]:
    """Yield the inputs of epochs; those of the next are drawn in a thread while an epoch is trained."""
    with ThreadPoolExecutor(1) as pool:
        waiting = deque[Future[Epoch]]()
        for number in numbers:
            waiting.append(pool.submit(draw, number))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        yield from (one.result() for one in waiting)


def fed(feed: Feed, drawn: Iterator[Epoch], first: int) -> Generator[tuple[Epoch, Iterator[Any] | None]]:
    """Yield every epoch with the batches of its steps, the first one from step `first`; None if the device has them."""
    if isinstance(feed, Resident):
        yield from ((epoch, None) for epoch in drawn)
        return
    epochs, again = tee(drawn)
    begins = chain([first], repeat(0))
    steps = ((epoch.order[at:], epoch.seeds[at:]) for epoch, at in zip(again, begins, strict=False))
    with closing(feed.epochs(steps)) as batches:
        yield from ((epoch, batches) for epoch in epochs)
