"""The JSON Schema of experiment files, by the eyes of a checker that knows nothing of this project."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from models import NETWORKS
from sweep.errors import Refused
from sweep.experiment.controls import CONTROLS
from sweep.experiment.file import dump, load
from sweep.experiment.reading import schema
from sweep.experiment.sources import SOURCES
from sweep.pruning.scores import SCORES
from tests.experiment.conftest import SMALL

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
KEPT = EXPERIMENTS / "schema.json"


def checked(*words: object) -> tuple[int, dict]:
    """Status and answer of check-jsonschema."""
    line = [sys.executable, "-m", "check_jsonschema", "-o", "json", *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


def test_the_schema_in_the_repository_is_the_one_that_the_command_prints():
    done = subprocess.run([sys.executable, "-m", "lottery", "schema"], capture_output=True, text=True, check=True)
    assert done.stdout == KEPT.read_text(), "lottery schema > experiments/schema.json"
    assert json.loads(done.stdout)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_schema_is_one_and_every_shipped_file_names_it_and_keeps_to_it():
    assert checked("--check-metaschema", KEPT)[0] == 0
    files = sorted(EXPERIMENTS.glob("*.yaml"))
    assert checked("--schemafile", KEPT, *files)[0] == 0
    for path in files:
        assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n"), path.name


def test_what_an_experiment_is_written_out_as_keeps_to_the_schema(tmp_path):
    for path in EXPERIMENTS.glob("*.yaml"):
        (tmp_path / path.name).write_text(dump(load(path)))
    assert checked("--schemafile", KEPT, *tmp_path.iterdir())[0] == 0


WRONG = {
    "unknown_key": "recipe: {epoch: 3}",
    "unknown_section": "recipes: {epochs: 3}",
    "text_for_a_count": "recipe: {epochs: many}",
    "below_the_limit": "recipe: {epochs: 0}",
    "beyond_the_limit": "prune: {quantiles: [0.5, 1.5]}",
    "unknown_network": "model: {name: resnet21}",
    "unknown_control": "prune: {controls: [frsh]}",
    "unknown_score": "prune: {methods: [snap]}",
    "no_point": "prune: {rewind: [2]}",
    "twice": "seeds: [1, 1]",
    "none": "seeds: []",
    "two_words": "cluster: {partition: a b}",
    "an_option_of_the_chain": "cluster: {options: [--dependency=singleton]}",
    "a_list_for_a_section": "data: [cifar10]",
}


def test_wrong_files_are_refused_by_the_checker_and_by_the_program(tmp_path):
    for name, text in WRONG.items():
        (tmp_path / f"{name}.yaml").write_text(text)
        with pytest.raises(Refused, match=f"{name}.yaml: "):
            load(tmp_path / f"{name}.yaml")
    status, answer = checked("--schemafile", KEPT, *tmp_path.iterdir())
    assert status == 1
    assert {Path(error["filename"]).stem for error in answer["errors"]} == set(WRONG)


def test_every_field_has_a_default_and_says_what_it_means_and_what_may_stand_there():
    parts = [schema(), *schema()["$defs"].values()]
    fields = [(name, field) for part in parts for name, field in part["properties"].items() if "$ref" not in field]
    assert len(fields) >= 80 and all(part["additionalProperties"] is False for part in parts)
    assert [name for name, field in fields if not {"title", "description", "default"} <= set(field)] == []


def test_what_is_registered_can_be_chosen():
    parts = {name: part["properties"] for name, part in schema()["$defs"].items()}
    assert parts["Model"]["name"]["enum"] == list(NETWORKS)
    assert parts["Data"]["name"]["enum"] == list(SOURCES)
    assert parts["Prune"]["controls"]["items"]["enum"] == list(CONTROLS)
    methods = parts["Prune"]["methods"]["items"]["anyOf"][0]["enum"]
    assert {*SCORES, "magnitude/erk", "snip/uniform"} <= set(methods) and "lamp/erk" not in methods


@pytest.mark.parametrize("method", schema()["$defs"]["Prune"]["properties"]["methods"]["items"]["anyOf"][0]["enum"])
def test_every_method_that_the_schema_offers_is_one(written, method):
    assert written(SMALL, f"prune.methods=[{method}]").prune.methods
