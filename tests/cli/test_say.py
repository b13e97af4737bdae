"""The method in words, before a sweep starts."""

from __future__ import annotations

from lottery.cli.say import method
from sweep.experiment.method import method as parsed
from sweep.graph.home import Home
from tests import synthetic


def test_a_sweep_says_its_method_and_nothing_that_it_does_not_do(tmp_path):
    whole = synthetic.experiment(quantiles=(0.5,), instability=synthetic.points(0, 1))
    lines = method(Home(tmp_path / "small", whole)).splitlines()
    starts = ("small: ", "1. Dense run", "2. Masks", "3. Tickets", "4. Instability: from 0, 1ep", "5. Report: test")
    assert len(lines) == 6 and all(line.startswith(start) for line, start in zip(lines, starts, strict=True))
    assert "kept at 0, 1ep, 2ep, at extra early checkpoints" in lines[1] and lines[3].endswith(" 2 trainings.")
    method_at = synthetic.experiment(quantiles=(0.5,), methods=(parsed("magnitude@1ep"),), controls=("fresh",))
    lines = method(Home(tmp_path / "at", method_at)).splitlines()
    assert "kept at 0, 1ep, 2ep, at extra early checkpoints" in lines[1] and lines[3].endswith(
        "2 trainings; beside them 1 fresh."
    )
    alone = synthetic.experiment(quantiles=(), rewind=synthetic.points(0), instability=synthetic.points(0))
    lines = method(Home(tmp_path / "alone", alone)).splitlines()
    assert [line.partition(":")[0] for line in lines[1:]] == ["1. Dense run", "2. Instability", "3. Report."]
