"""Experiment files: YAML and `key.sub=value` overrides to checked dataclasses, and back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from sweep.errors import Refused, brief, cut
from sweep.experiment.fields import Experiment, plain

MOST_CHARACTERS = 131_072  # enough for some ten thousand seeds or quantiles, read in seconds
MOST_NESTED, MOST_ALIASES = 20, 100


def load(path: Path, overrides: Iterable[str] = (), sources: tuple[Path, ...] = ()) -> Experiment:
    """Return the experiment in a YAML file, with `recipe.epochs=30` overrides; raise Refused with all mistakes.

    `sources`: the files whose source led here, and this one; empty where no other file led here.
    """
    from sweep.experiment.reading import read

    try:
        with open(path, encoding="utf-8") as f:
            text = f.read(MOST_CHARACTERS + 1)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}; expected an experiment file") from None
    except ValueError as error:  # not UTF-8
        raise Refused(f"{path}: not YAML: {cut(str(error))}") from None
    given = [_parsed(override) for override in overrides]
    try:
        raw = read_yaml(text)
        if not isinstance(raw, dict):
            raise Refused("expected sections such as model:, data:, recipe:, prune:")
        _refuse_edited(text, path)
        raw.setdefault("name", path.stem)
        for keys, value in given:
            _set(raw, keys, value)
        _fill_in_source(raw, path.parent, sources)
        experiment = read(raw)
        if len(dump(experiment)) > MOST_CHARACTERS - 1000:  # leaves room for the digest of the images and the checksum
            raise Refused(f"written out in full, more than {MOST_CHARACTERS - 1000:,} characters; expected an "
                          "experiment that can be read again from its results")  # fmt: skip
    except Refused as error:
        raise Refused("\n".join(f"{path}: {line}" for line in str(error).split("\n"))) from None
    return experiment


def _fill_in_source(raw: dict[str, Any], folder: Path, sources: tuple[Path, ...]) -> None:
    """Fill in `transfer` and the network from the experiment file that `transfer.source` names; given values stay."""
    transfer = raw.get("transfer")
    if not isinstance(transfer, dict):
        return
    source = transfer.get("source")
    if not isinstance(source, str) or Path(source).suffix not in (".yaml", ".yml"):
        return
    if (place := (folder / source).resolve()) in sources:
        raise Refused(f"transfer.source: received {brief(source)}, expected an experiment that is not its own source")
    found = load(folder / source, (), (*sources, place))
    model, own = plain(found.model), raw.setdefault("model", {})
    if isinstance(own, dict) and (other := [key for key in own if key in ("name", "width") and own[key] != model[key]]):
        right = f"{model[other[0]]}, the one of {source}: its masks are for that network"
        raise Refused(f"model.{other[0]}: received {brief(own[other[0]])}, expected {right}")
    raw["model"] = model | own if isinstance(own, dict) else own
    for section, there in (("data", found.data), ("recipe", found.recipe)):
        given = transfer.get(section) or {}
        transfer[section] = plain(there) | given if isinstance(given, dict) else given
    transfer["source"] = found.name


def check(experiment: Experiment) -> None:
    """Raise Refused with every mistake in an experiment that was made in Python."""
    from sweep.experiment.reading import read

    read(plain(experiment))


def changed(experiment: Experiment, override: str) -> Experiment:
    """Return the experiment with one `recipe.epochs=30` override; raise Refused with all mistakes."""
    from sweep.experiment.reading import read

    raw = plain(experiment)
    _set(raw, *_parsed(override))
    return read(raw)


class _Loader(yaml.SafeLoader):
    """A YAML loader with fewer surprises, made for untrusted files.

    12:00:00, 030 and 2024-01-01 are text, not numbers or dates; keys are words without duplicates; tags, and more
    nesting or aliases than an experiment needs, are refused.
    """

    depth = aliases = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        where = f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            self.aliases += 1
        elif event.tag is not None:
            raise Refused(f"{where}: received the tag {brief(event.tag)}, expected a value without a tag")
        if isinstance(event, yaml.ScalarEvent) and _HALF.search(event.value):
            raise Refused(f"{where}: received {brief(event.value)}, expected text: that is half a character")
        if self.aliases > MOST_ALIASES:
            raise Refused(f"{where}: more than {MOST_ALIASES} aliases, expected an experiment file")
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise Refused(f"{where}: nested too deeply, expected at most {MOST_NESTED} lists or sections deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            where = f"line {key.start_mark.line + 1}"
            if not isinstance(key, yaml.ScalarNode):
                raise Refused(f"{where}: received a list or a section as a key, expected a word")
            if key.value in seen:
                raise Refused(f"{where}: the key {brief(key.value)} stands there twice, expected once")
            seen.add(key.value)
            key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


_HALF = re.compile("[\ud800-\udfff]")  # a lone surrogate, which cannot be encoded
# Of YAML 1.1 only booleans and null are kept. No merge keys (<<): doubled twenty times they fill any memory.
_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:null")]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?(0|[1-9][0-9]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+][0-9]+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"),
    list("-+.0123456789"),
)


def read_yaml(text: str) -> Any:
    """Return the value of a YAML text; raise Refused if it is not YAML or too long."""
    if len(text) > MOST_CHARACTERS:
        raise Refused(f"more than {MOST_CHARACTERS:,} characters, expected an experiment file")
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a number with thousands of digits
        raise Refused(f"not YAML: {cut(' '.join(str(error).split()))}") from None


def dump(experiment: Experiment) -> str:
    """Return the complete experiment as YAML; loading it gives an equal one."""
    sections = plain(experiment)
    if not experiment.transfer.source:
        del sections["transfer"]
    return yaml.safe_dump(sections, sort_keys=False, width=120)


SEAL = "# checksum "


def record(experiment: Experiment) -> str:
    """Return the experiment as YAML for its results folder, with a checksum so that later edits are found."""
    text = dump(experiment)
    return f"{text}{SEAL}{_checksum(text)} of the lines above; change a file of your own, or give key.sub=value\n"


def _refuse_edited(text: str, path: Path) -> None:
    above, seal, rest = text.rpartition(SEAL)
    beside = (path.parent.parent / name for name in ("trainings", "trainings.json"))  # in a pool, in a record
    if not seal and path.name == "experiment.yaml" and any(one.exists() for one in beside):
        raise Refused("without the checksum at its end, so cut off, edited or of an earlier version; bring it "
                      "back from a copy, or delete it and run your own experiment file again")  # fmt: skip
    if seal and rest.split()[:1] != [_checksum(above)]:
        raise Refused("edited since it was written, so not what its results were trained with; take that "
                      "back and give key.sub=value instead, or take out the last line of your own copy")  # fmt: skip


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def dump_changes(experiment: Experiment) -> str:
    """Return the experiment as YAML, without fields that have their defaults."""

    def changed(now: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
        other = {key: value for key, value in now.items() if value != default[key]}
        return {key: changed(v, default[key]) if isinstance(v, dict) else v for key, v in other.items()}

    return yaml.safe_dump(changed(plain(experiment), plain(Experiment())), sort_keys=False, width=120)


def _parsed(override: str) -> tuple[list[str], Any]:
    key, equals, text = override.partition("=")
    if not equals:
        raise Refused(f"{brief(override)}: expected key.sub=value, such as recipe.epochs=30")
    try:
        return key.split("."), read_yaml(text)
    except Refused as error:
        raise Refused(f"{brief(override)}: {error}") from None


def _set(raw: Any, keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        raw = raw.setdefault(key, {})
        if not isinstance(raw, dict):
            raise Refused(f"{'.'.join(keys)}: {brief(key)} is not a section")
    raw[keys[-1]] = value
