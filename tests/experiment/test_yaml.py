"""YAML as a person means it, and YAML that no person writes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from sweep.errors import Refused
from sweep.experiment.file import load, record
from tests.experiment.conftest import SMALL
from tests.synthetic import refusal


def test_times_and_numbers_mean_what_a_person_means(written):
    text = SMALL.replace("epochs: 4", "epochs: 030") + "cluster: {time_limit: 12:00:00, partition: 7, account: 0123}\n"
    made = written(text)
    assert made.recipe.epochs == 30
    assert (made.cluster.time_limit, made.cluster.partition, made.cluster.account) == ("12:00:00", "7", "0123")
    assert written(SMALL, "cluster.time_limit=90").cluster.time_limit == "90"
    assert written(SMALL, "cluster.dense_time_limit=1:30:00").cluster.dense_time_limit == "1:30:00"


def test_thousands_of_values_are_read_and_can_be_read_again(written):
    made = written(SMALL + f"seeds: {list(range(3000))}\n", "prune.rewind=[0]", "prune.quantiles=[0.5]")
    assert len(made.seeds) == 3000
    many = written(SMALL, f"prune.quantiles={[i / 7001 for i in range(1000)]}")
    for one in (made, many):
        assert written(record(one), name="again") == dataclasses.replace(one, name="small")


def test_a_date_an_equals_sign_and_a_time_with_a_fraction_are_text(written):
    assert written(SMALL, "note=2024-13-45").note == "2024-13-45"
    assert written(SMALL, "note='='").note == written(SMALL, "note==").note == "="
    assert "recipe.learning_rate: received '1:30.5', expected a number" in refusal(
        lambda: written(SMALL, "recipe.learning_rate=1:30.5")
    )


BOMB = "a: &a [x, x]\n" + "\n".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]" for i in range(9)
)
MERGED = "a0: &a0 {x: 1}\n" + "".join(f"a{i + 1}: &a{i + 1} {{<<: [*a{i}, *a{i}]}}\n" for i in range(40))
UNREADABLE = {
    "a key twice": (SMALL + "seeds: [0]\nseeds: [1]\n", "the key 'seeds' stands there twice"),
    "a key twice inside": ("recipe: {epochs: 3, epochs: 4}\n", "the key 'epochs' stands there twice"),
    "nested deeply": ("a: " + "[" * 30_000 + "]" * 30_000, "line 1: nested too deeply, expected at most 20"),
    "a list in a list without end": ("- " * 60_000, "nested too deeply"),
    "a list as a key": ("{[a]: b}", "small.yaml: line 1: received a list or a section as a key, expected a word"),
    "a section as a key": ("model:\n  ? {a: b}\n  : 3\n", "line 2: received a list or a section as a key"),
    "a number of nothing": ("recipe: {epochs: !!int ''}", "received the tag 'tag:yaml.org,2002:int', expected a"),
    "a time that is none": ("note: !!timestamp foo", "received the tag 'tag:yaml.org,2002:timestamp'"),
    "a truth that is none": ("data: {flip: !!bool 'x'}", "received the tag 'tag:yaml.org,2002:bool'"),
    "a fraction of nothing": ("recipe: {momentum: !!float ''}", "received the tag 'tag:yaml.org,2002:float'"),
    "bytes": ("note: !!binary =", "received the tag 'tag:yaml.org,2002:binary'"),
    "pairs": ("recipe: !!omap [epochs: 3]", "received the tag 'tag:yaml.org,2002:omap'"),
    "a word that is no section": ("recipe: !!map x", "received the tag 'tag:yaml.org,2002:map'"),
    "an object": ("note: !!python/object/apply:os.getcwd []", "received the tag 'tag:yaml.org,2002:python/object"),
    "a tag of one's own": ("note: !mine x", "received the tag '!mine', expected a value without a tag"),
    "sections merged into each other": (MERGED, "small.yaml: a0: no such key"),
    "half a character": ('note: "\\ud800"', "line 1: received '\\ud800', expected text: that is half a character"),
    "a key of two lines": ('"a\\nb": 3', "small.yaml: 'a\\nb': no such key"),
    "more aliases than anyone": (f"a: &a 0\nseeds: [{'*a, ' * 101}]", "line 2: more than 100 aliases"),
    "one text a hundred times": (
        f"note: &a {'x' * 3000}\ncluster: {{setup: [{'*a, ' * 99}]}}",
        "written out in full, more than",
    ),
    "many digits": ("recipe: {epochs: " + "9" * 6000 + "}", "small.yaml: "),
    "an alias that stands for millions": (BOMB + "\nrecipe: *i\n", "small.yaml: "),
    "a file of megabytes": ("# " + "x" * 2_000_000 + "\n" + SMALL, "characters, expected an experiment file"),
}


@pytest.mark.parametrize(("text", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_no_person_writes_is_refused_in_short_lines(written, text, message):
    with pytest.raises(Refused, match=re.escape(message)) as caught:
        written(text)
    lines = str(caught.value).splitlines()
    assert len(lines) <= 21 and all(len(line) < 600 for line in lines)


UNREADABLE_VALUES = {
    "a list as a key": ("note={[a]: b}", "'note={[a]: b}': line 1: received a list or a section as a key"),
    "a number of nothing": ("recipe.epochs=!!int ''", "line 1: received the tag 'tag:yaml.org,2002:int'"),
    "a list in a list without end": ("seeds=" + "- " * 60_000, "line 1: nested too deeply"),
    "megabytes": ("note=" + "x" * 2_000_000, "more than 131,072 characters"),
}


@pytest.mark.parametrize(("override", "message"), UNREADABLE_VALUES.values(), ids=UNREADABLE_VALUES)
def test_what_no_person_writes_is_refused_on_the_command_line_too(written, override, message):
    said = refusal(lambda: written(SMALL, override))
    assert message in said and len(said) < 600


def test_a_file_without_end_is_not_read_to_its_end():
    said = refusal(lambda: load(Path("/dev/zero")))
    assert said == "/dev/zero: more than 131,072 characters, expected an experiment file"
