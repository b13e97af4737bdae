"""The cluster that the tests start says in one line why it cannot, in the daemon's own words."""

from __future__ import annotations

import pytest

from tests import slurm_cluster
from tests.conftest import need, without


@pytest.mark.programs
@pytest.mark.slow
def test_a_slurm_that_cannot_start_here_says_why_in_one_line_and_leaves_nothing():
    need(slurm_cluster.missing_programs(), "a real SLURM")
    cluster = slurm_cluster.Cluster()
    cluster.settings["ProctrackType"] = "proctrack/nowhere"
    with pytest.raises(slurm_cluster.CannotStart) as caught, cluster:
        pass
    assert "proctrack/nowhere" in str(caught.value) and "\n" not in str(caught.value)
    assert not cluster.base.exists()


def test_what_cannot_run_here_is_skipped_and_failed_where_all_components_are_required(monkeypatch):
    monkeypatch.delenv("REQUIRE_ALL_COMPONENTS", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^no such host$"):
        without("no such host\nand a page of traceback")
    monkeypatch.setenv("REQUIRE_ALL_COMPONENTS", "1")
    with pytest.raises(pytest.fail.Exception, match=r"^no such host$"):
        without("no such host\nand a page of traceback")
