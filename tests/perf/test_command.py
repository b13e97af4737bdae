"""How fast the command answers."""

from __future__ import annotations

import resource

import pytest

from tests.cli.conftest import command, here, home, unfinished  # noqa: F401 - fixtures

pytestmark = pytest.mark.perf


def used() -> float:
    """Processor time of all children so far."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


@pytest.mark.parametrize("words", ["--help", "report --help", "plan small.yaml", "status small"])
def test_looking(unfinished, words, figure):  # noqa: F811
    took = []
    for _ in range(3):
        before = used()
        assert command(*words.split()).returncode == 0
        took.append(used() - before)
    figure(f"lottery {words}", min(took), "CPU-s", at_most=1)
