"""The wandb workspace of a sweep: written to a file, made on a server, and brought up to date there."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from sweep.errors import Refused
from sweep.experiment import Track
from sweep.graph.home import Home, open_home
from sweep.report.findings import findings, in_markdown
from sweep.tracking import dashboard
from sweep.tracking import runs as tracking
from tests import synthetic
from tests.wandb_server import serving

pytestmark = pytest.mark.slow

KEY = "0" * 40


@pytest.fixture
def server(monkeypatch, tmp_path):
    import wandb

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with serving() as made:
        monkeypatch.setenv("WANDB_BASE_URL", made.url)
        yield made
    wandb.teardown()  # it remembers the server for the whole process


def home(root, mode: str, **changes) -> Home:
    experiment = dataclasses.replace(synthetic.experiment(**changes), track=Track(mode))
    return open_home(experiment, root / experiment.name)


def shown(spec: dict) -> list[str]:
    """Everything the panels of a workspace read."""
    panels = [panel for section in spec["section"]["panelBankConfig"]["sections"] for panel in section["panels"]]
    return re.findall(r"[a-z_0-9:.]+", json.dumps([panel["config"] for panel in panels]))


@pytest.mark.parametrize("mode", ["disabled", "offline"])
def test_without_a_server_the_file_holds_what_wandb_can_read(mode, tmp_path):
    from wandb_workspaces.workspaces.internal import WorkspaceViewspec

    made = home(tmp_path, mode)
    path, url = dashboard.publish_workspace(made)
    written = json.loads(path.read_text())
    assert (url, written["name"]) == ("", made.experiment.name)
    WorkspaceViewspec.model_validate(written["spec"])
    for name in ("config:density.value", "config:rewind.value", "summary:test_top1", "heatmap", "validation_top1",
                 "images_per_second", "data_wait_share"):  # fmt: skip
        assert name in shown(written["spec"])
    assert made.experiment.name in json.dumps(written["spec"]["section"]["runSets"])


def test_what_the_dashboard_shows_is_what_runs_log(tmp_path):
    """A panel of something that no run has stays empty for ever."""
    made = home(tmp_path, "offline")
    folder = synthetic.finish(made, "dense-seed0", 0.9)
    logged = {"epoch", "validation_top1", "train_loss", "learning_rate", "images_per_second", "data_wait_share"}
    summary = set(tracking._flat(json.loads((folder / "result.json").read_text())))
    config = {"density", "rewind"}
    spec = json.loads(dashboard.publish_workspace(made)[0].read_text())["spec"]
    names = {name.removeprefix("summary:").removeprefix("config:").removesuffix(".value") for name in shown(spec)}
    assert logged | config | {"test_top1", "seconds", "heatmap", "accuracy"} <= names | {"epoch"}
    assert {"test_top1", "seconds"} <= summary


def test_online_it_is_made_once_and_then_brought_up_to_date(server, tmp_path, monkeypatch):
    from wandb_workspaces.workspaces import internal

    # a name that the library may draw, and whose address it makes wrongly
    monkeypatch.setattr(internal, "_generate_view_name", lambda: "nw-zy5vhjgmbnw-v")
    made = home(tmp_path, "online")
    _, url = dashboard.publish_workspace(made)
    assert url.startswith(server.url) and len(server.views) == 1
    (view,) = server.views.values()
    assert view["displayName"] == made.experiment.name and "summary:test_top1" in shown(json.loads(view["spec"]))
    view["spec"] = view["spec"].replace("Learning curves", "An older heading")
    assert dashboard.publish_workspace(made)[1] == url
    (view,) = server.views.values()
    assert "Learning curves" in view["spec"] and "An older heading" not in view["spec"]


def test_a_dashboard_that_was_deleted_on_the_server_is_refused_with_what_to_do(server, tmp_path):
    made = home(tmp_path, "online")
    dashboard.publish_workspace(made)
    server.views.clear()
    with pytest.raises(Refused, match=r"not found.*to make it anew delete .*dashboard.json"):
        dashboard.publish_workspace(made)


def test_a_damaged_file_of_the_dashboard_is_refused_by_its_name(tmp_path):
    made = home(tmp_path, "offline")
    path, _ = dashboard.publish_workspace(made)
    path.write_text(path.read_text()[:-9])
    with pytest.raises(Refused, match=r"dashboard.json: not readable as JSON"):
        dashboard.publish_workspace(made)


def test_without_a_key_it_goes_to_the_file(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    path, url = dashboard.publish_workspace(home(tmp_path, "online"))
    assert url == "" and "spec" in json.loads(path.read_text())


def test_the_report_says_what_the_page_says_and_shows_the_views_of_the_workspace(tmp_path):
    from wandb_workspaces.reports.v2.internal import Spec

    made = home(tmp_path, "offline")
    synthetic.finish(made, "dense-seed0", 0.9)
    ticket = synthetic.tickets(made)[0]
    synthetic.finish(made, ticket, 0.895, density=0.5, kept=1, prunable=2, threshold=0.1)
    words = in_markdown(findings(made))
    for said in ("One seed: no significance test.", "Dense network: 90.00% over 1 seed.",
                 "Unfinished: 3 of 5 trainings are missing", "| 50.00% | 0 | 1 | 89.50% |"):  # fmt: skip
        assert said in words
    path, url = dashboard.publish_report(made, words)
    spec = json.loads(path.read_text())["spec"]
    Spec.model_validate(spec)
    said = json.dumps(spec)
    for name in ("One seed: no significance test", "config:density.value", "summary:test_top1", "heatmap",
                 "validation_loss", "Learning curves"):  # fmt: skip
        assert name in said
    assert url == ""


def test_a_report_that_was_deleted_on_the_server_is_refused_with_what_to_do(server, tmp_path):
    made = home(tmp_path, "online")
    path, url = dashboard.publish_report(made, "Nothing yet.")
    server.views.clear()
    with pytest.raises(Refused, match=r"not found.*to make it anew delete .*wandb-report.json"):
        dashboard.publish_report(made, "All done.")
    offline = dataclasses.replace(made.experiment, track=Track("offline"))
    dashboard.publish_report(Home(made.root, offline), "In a file.")
    assert json.loads(path.read_text())["url"] == url  # the next time it is asked for there


def test_a_report_is_made_once_on_the_server_and_then_brought_up_to_date(server, tmp_path):
    made = home(tmp_path, "online")
    _, url = dashboard.publish_report(made, "Nothing yet.")
    (view,) = server.views.values()
    assert url.startswith(server.url) and view["displayName"] == made.experiment.name and "Nothing yet." in view["spec"]
    assert dashboard.publish_report(made, "All done.")[1] == url
    (view,) = server.views.values()
    assert "All done." in view["spec"] and "Nothing yet." not in view["spec"]
