"""Experiment files: YAML and `key.sub=value` overrides in, checked dataclasses out, and back again."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import math
import re
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from sweep.errors import Refused, brief, cut
from sweep.experiment.checks import check
from sweep.experiment.fields import Experiment
from sweep.experiment.method import Method, method
from sweep.experiment.point import Point, point

MOST_CHARACTERS = 131_072  # of an experiment file: some ten thousand seeds or quantiles, read within seconds
MOST_NESTED, MOST_ALIASES = 20, 100
WORDS: dict[Any, Callable[[object], Any]] = {Point: point, Method: method}  # values that are written as a word


def load(path: Path, overrides: Iterable[str] = ()) -> Experiment:
    """The experiment in a YAML file, `recipe.epochs=30` style overrides applied."""
    try:
        with open(path, encoding="utf-8") as f:
            text = f.read(MOST_CHARACTERS + 1)
        raw = read_yaml(text)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}; expected an experiment file") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: text that is not UTF-8, thousands of digits
        raise Refused(f"{path}: not YAML: {cut(' '.join(str(error).split()))}") from None
    except Refused as error:
        raise Refused(f"{path}: {error}") from None
    if not isinstance(raw, dict):
        raise Refused(f"{path}: expected sections such as model:, data:, recipe:, prune:")
    _refuse_edited(text, path)
    raw.setdefault("name", path.stem)
    for override in overrides:
        _set(raw, override)
    try:
        experiment: Experiment = convert(Experiment, raw, "")
        check(experiment)
        if len(dump(experiment)) > MOST_CHARACTERS - 1000:  # room for the listing of the images and the checksum
            raise Refused(f"written out in full, more than {MOST_CHARACTERS - 1000:,} characters; expected an "
                          "experiment that can be read again from its results")  # fmt: skip
    except Refused as error:
        raise Refused(f"{path}: {error}") from None
    return experiment


class _Loader(yaml.SafeLoader):
    """YAML as a person means it: 12:00:00, 030 and 2024-01-01 are text, no numbers to base 60 or 8 and no dates; a key
    is a word that stands once; tags, and more nesting and aliases than an experiment needs, are refused as they come.
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
        return super().construct_mapping(node, deep)


_HALF = re.compile("[\ud800-\udfff]")  # a surrogate alone, which cannot be written anywhere
# Of YAML 1.1 stay truth values and null. Merge keys (<<) go too: doubled twenty times they fill any memory.
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
    """Return what the text says as YAML. Raise Refused if it is more than an experiment may have, before it is read."""
    if len(text) > MOST_CHARACTERS:
        raise Refused(f"more than {MOST_CHARACTERS:,} characters, expected an experiment file")
    return yaml.load(text, Loader=_Loader)


def dump(experiment: Experiment) -> str:
    """The complete experiment as YAML; loading it gives an equal one."""
    return yaml.safe_dump(_plain(experiment), sort_keys=False, width=120)


SEAL = "# checksum "


def record(experiment: Experiment) -> str:
    """The same for a results folder, sealed: what it says was asked must not change under results that are there."""
    text = dump(experiment)
    return f"{text}{SEAL}{_checksum(text)} of the lines above; change a file of your own, or give key.sub=value\n"


def _refuse_edited(text: str, path: Path) -> None:
    above, seal, rest = text.rpartition(SEAL)
    beside = (path.parent.parent / name for name in ("trainings", "trainings.json"))  # of results, of a record
    if not seal and path.name == "experiment.yaml" and any(one.exists() for one in beside):
        raise Refused(f"{path}: without the checksum at its end, so cut off, edited or of an earlier version; bring it "
                      "back from a copy, or delete it and run your own experiment file again")  # fmt: skip
    if seal and rest.split()[:1] != [_checksum(above)]:
        raise Refused(f"{path}: edited since it was written, so not what its results were trained with; take that "
                      "back and give key.sub=value instead, or take out the last line of your own copy")  # fmt: skip


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def dump_changes(experiment: Experiment) -> str:
    """The same without what is as by default."""
    default = _plain(Experiment(experiment.name))
    changed: dict[str, Any] = {"name": experiment.name}
    for key, value in _plain(experiment).items():
        if isinstance(value, dict):
            changed[key] = {name: inside for name, inside in value.items() if inside != default[key][name]}
        elif value != default[key]:
            changed[key] = value
    changed = {key: value for key, value in changed.items() if value}
    return yaml.safe_dump(changed, sort_keys=False, width=120)


def convert(kind: Any, value: Any, where: str) -> Any:
    """`value` as the type `kind`, strictly: nothing unknown, nothing of the wrong type."""
    if kind in WORDS:
        try:
            return WORDS[kind](value)
        except Refused as error:
            raise Refused(f"{where}: {error}") from None
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise _wrong(where, value, "a section with keys " + _some([f.name for f in dataclasses.fields(kind)]))
        hints = get_type_hints(kind)
        for key in value:
            if key not in hints:
                raise Refused(f"{cut(_join(where, _shown(key)))}: no such key{suggestion(str(key), hints)}")
        return kind(**{key: convert(hints[key], v, _join(where, key)) for key, v in value.items()})  # type: ignore[operator]
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong(where, value, "a list")
        return tuple(convert(get_args(kind)[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    if get_origin(kind) is Union:  # a number, or a word instead of it
        number, word = get_args(kind)
        if isinstance(value, str) and value not in get_args(word):
            raise _wrong(where, value, f"a number or {', '.join(get_args(word))}")
        return convert(word if isinstance(value, str) else number, value, where)
    if get_origin(kind) is Literal:
        allowed = get_args(kind)
        # YAML 1.1 reads a bare on or off as a boolean
        value = {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value
        if value not in allowed:
            raise _wrong(where, value, f"one of {', '.join(allowed)}")
        return value
    if kind is str and value is False:
        value = "off"  # data.cache: off; YAML 1.1 reads it as a boolean
    if kind is str and where.startswith("cluster.") and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # a partition, an account or minutes may be a number
    if kind is int and isinstance(value, str) and re.fullmatch(r"[-+]?0[0-9]{1,17}", value):
        value = int(value)  # 030 is 30
    if kind is float and isinstance(value, int | str) and not isinstance(value, bool):
        try:
            # YAML 1.1 reads 1e-4 as text; as bytes, because of text Python takes the digits of every script
            value = float(value.encode("ascii") if isinstance(value, str) else value)
        except (ValueError, OverflowError):
            raise _wrong(where, value, "a number") from None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise _wrong(where, value, names[kind])
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong(where, value, "a number")
    return value + 0.0 if kind is float else value  # -0.0 would give another name to what 0.0 asks


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or the list of what there is."""
    known = list(known)
    if not known:
        return ""
    similar = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {similar[0]}?" if similar else f"; there are {_some(known)}"


def _some(names: list[str]) -> str:
    """As many as fit in a line."""
    return ", ".join(names) if len(names) <= 12 else f"{', '.join(names[:10])} and {len(names) - 10} more"


def _set(raw: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals:
        raise Refused(f"{brief(override)}: expected key.sub=value, such as recipe.epochs=30")
    *sections, last = key.split(".")
    at = raw
    for section in sections:
        at = at.setdefault(section, {})
        if not isinstance(at, dict):
            raise Refused(f"{brief(override)}: {_shown(section)} is not a section")
    try:
        at[last] = read_yaml(text)
    except (yaml.YAMLError, ValueError):
        raise Refused(f"{brief(override)}: the value is not YAML") from None
    except Refused as error:
        raise Refused(f"{brief(override)}: {error}") from None


def _plain(part: Any) -> Any:
    if type(part) in WORDS:
        return str(part)
    if dataclasses.is_dataclass(part) and not isinstance(part, type | types.GenericAlias):
        return {f.name: _plain(getattr(part, f.name)) for f in dataclasses.fields(part)}
    return [_plain(one) for one in part] if isinstance(part, tuple) else part


def _shown(key: object) -> str:
    """Return a key as it stands there, or escaped if it would not stay in its line."""
    return str(key) if str(key).isprintable() else brief(key)


def _join(where: str, key: object) -> str:
    return f"{where}.{key}" if where else str(key)


def _wrong(where: str, value: object, right: str) -> Refused:
    """The value is cut short before it is written out: an alias may stand for a billion of them."""
    return Refused(f"{where}: received {brief(value)}, expected {right}")
