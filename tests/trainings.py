"""What tests of training share."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.errors import Interrupted
from sweep.training.start import Start


def epoch(program, number: int = 0, seed: int = 0):
    return program.epoch(number, seed)


def assert_equal_bits(one, other) -> None:
    for a, b in zip(one, other, strict=True):
        assert a.tobytes() == b.tobytes()


def trained(program, start, folder: Path, **options):
    from sweep.training.loop import train

    outcome = train(program, start, folder, "test", **{"quiet": True} | options)
    return outcome, program.weights()


class stop_at_once:
    requested = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def trained_in_pieces(program, start, folder: Path):
    """One step at a time, another state in the program each time."""
    from sweep.training import loop

    for _ in range(program.recipe.epochs * program.steps + 1):
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(loop, "stoppable", stop_at_once)
                return trained(program, start, folder)
        except Interrupted:
            program.load(program.network.initial(77))
    raise AssertionError("it does not go on where it stopped")


def start_at(program, number: int = 0, mask=None, seed: int = 0):
    return Start(program.network.initial(seed), number * program.steps, seed, mask)


def assert_nothing_is_traced_later(program, folder: Path) -> None:
    """Traced ahead as under XLA, the program finds what it needs when it trains and evaluates."""
    for called, arguments in program.calls():
        called.get_concrete_function(**arguments)

    def traces() -> list[int]:
        return [called.experimental_get_tracing_count() for called in (program._run, program.evaluation._evaluate)]

    before = traces()
    assert min(before) > 0
    trained(program, start_at(program), folder)
    program.evaluation.metrics(program.dataset.test)
    assert traces() == before
