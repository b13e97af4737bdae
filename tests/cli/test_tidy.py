"""What no experiment asks for any more is listed, and deleted only when told."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from sweep.experiment import END
from sweep.graph.home import Home, open_home
from sweep.graph.mask_file import make_mask
from tests import synthetic
from tests.synthetic import content


@pytest.fixture
def shrunk(home) -> Home:
    """Everything was done; then one quantile was taken out of the experiment."""
    for training in home.graph:
        synthetic.finish(home, training.slug, 0.5)
    synthetic.write_snapshot(home, synthetic.network().initial(0), None)
    for training in home.graph:
        if training.mask:
            make_mask(home, training.mask)
    open_home(synthetic.experiment(quantiles=(0.5,)), home.root)
    return home


def listed(said: str) -> list[str]:
    return [Path(one["path"]).name for one in json.loads(said)]


def test_what_was_taken_out_of_an_experiment_is_listed_and_stays(shrunk, lottery):
    before = content(shrunk.pool)
    status, said, _ = lottery("tidy", "--json")
    gone = [training for training in shrunk.graph if "q0.9" in training.slug]
    mask = shrunk.mask(gone[0].mask).name
    assert status == 0 and listed(said) == sorted(one.name for one in gone) + [mask]
    assert all(one["bytes"] > 0 for one in json.loads(said))
    _, said, _ = lottery("tidy")
    assert "3 unreferenced: no experiment asks for them" in said and "lottery tidy --delete deletes them" in said
    assert content(shrunk.pool) == before


def test_tidy_delete_removes_only_what_no_experiment_asks_for(shrunk, lottery):
    wanted = {training.name for training in shrunk.graph if "q0.9" not in training.slug}
    assert "deleted: 3" in lottery("tidy", "--delete")[1]
    assert {path.name for path in (shrunk.pool / "trainings").iterdir()} == wanted
    assert len(list((shrunk.pool / "masks").iterdir())) == 1
    assert "0 unreferenced" in lottery("tidy")[1]


def test_what_another_experiment_asks_for_is_kept(shrunk, lottery):
    other = synthetic.experiment("other")
    open_home(other, shrunk.pool / "other")
    assert listed(lottery("tidy", "--json")[1]) == []


@pytest.mark.parametrize("place", ["absolute", "relative"])
def test_the_training_whose_weights_another_experiment_starts_from_is_kept(shrunk, lottery, place):
    gone = [training for training in shrunk.graph if "q0.9" in training.slug]
    other = synthetic.experiment("other")
    final = shrunk.snapshot(gone[0], END).resolve()
    final = final.relative_to(shrunk.pool.resolve()) if place == "relative" else final
    model = dataclasses.replace(other.model, weights=str(final), weights_digest="0123456789")
    open_home(dataclasses.replace(other, model=model), shrunk.pool / "other")
    assert gone[0].name not in listed(lottery("tidy", "--json")[1])
    assert gone[1].name in listed(lottery("tidy", "--json")[1])


def test_where_an_experiment_cannot_be_read_nothing_is_deleted(shrunk, lottery):
    (shrunk.pool / "other").mkdir()
    (shrunk.pool / "other" / "experiment.yaml").write_text("recipe: [")
    before = content(shrunk.pool)
    status, _, said = lottery("tidy", "--delete")
    assert status == 2 and "other/experiment.yaml: not YAML" in said
    assert content(shrunk.pool) == before


@pytest.mark.parametrize(
    ("hidden", "why"),
    [
        (lambda folder: (folder.rename(folder.with_name("away")), folder.symlink_to(folder)), "symbolic links"),
        (lambda folder: _cut(folder / "experiment.yaml"), "without the checksum at its end, so cut off"),
    ],
)
def test_an_experiment_that_cannot_be_looked_at_is_not_one_that_asks_for_nothing(shrunk, lottery, hidden, why):
    """A link in a circle stands for a folder of someone else: the system says of both that one may not look."""
    open_home(synthetic.experiment("other", seeds=(0, 1)), shrunk.pool / "other")
    hidden(shrunk.pool / "other")
    before = {path.name for path in (shrunk.pool / "trainings").iterdir()}
    (shrunk.pool / "away" / "experiment.yaml").unlink(missing_ok=True)
    status, _, said = lottery("tidy", "--delete")
    assert status == 2 and "other/experiment.yaml" in said and why in said
    assert {path.name for path in (shrunk.pool / "trainings").iterdir()} == before


def _cut(path: Path) -> None:
    path.write_text(path.read_text().partition("seeds:")[0])
