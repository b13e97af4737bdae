"""What is handed out, and what is not to come any more."""

from __future__ import annotations

from slurm.backend import Ready
from sweep.graph.home import Home
from sweep.work.worker import Failure
from tests import made_up


def handed_out(ready: Ready) -> list[str]:
    out = []
    while task := ready.next():
        out.append(task)
    return out


def test_what_needs_one_that_failed_is_not_to_come(tmp_path):
    ready = Ready(Home(tmp_path / "small", made_up.experiment(quantiles=(0.5,))))
    assert handed_out(ready) == ["dense-seed0"]
    ready.end("dense-seed0", Failure("dense-seed0", "diverged"))
    assert handed_out(ready) == [] and not ready.left


def test_where_a_point_cannot_be_had_what_starts_from_others_goes_on(tmp_path):
    """The dense run is done, without the weights of 2ep, and trained again it would be another one."""
    home = Home(tmp_path / "small", made_up.experiment(quantiles=(0.5,)))
    made_up.finish(home, "dense-seed0", 0.9)
    made_up.write_snapshot(home, made_up.network().initial(0), None)
    ready = Ready(home)
    assert handed_out(ready) == ["dense-seed0", "ticket-q0.5-k0-seed0"]  # which reads nothing that is lost
    ready.end("dense-seed0", Failure("dense-seed0", "its weights at 2ep are not there"))
    assert [one.slug for one in ready.waiting.values()] == ["ticket-q0.5-k0-seed0"]
