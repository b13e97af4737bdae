"""The conversion of a file's sections to an experiment, with a line for every mistake, and the JSON Schema.

Both are made by pydantic from the fields and their forms. Importing pydantic takes 0.2 s, so this module is imported
only where it is used.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from sweep.errors import Refused, brief, cut, some, suggestion
from sweep.experiment.checks import RULES
from sweep.experiment.fields import Experiment, plain

MOST_LINES = 20
_ADAPTER = TypeAdapter(Experiment)


def read(sections: dict[str, Any]) -> Experiment:
    """Return the experiment that the sections describe; raise Refused with a line for every mistake.

    If a field is invalid, rules between fields are still checked, except those that read this field.
    """
    lines: dict[str, str] = {}  # by place: a value that fits none of two types is one mistake
    wrong: set[str] = set()
    try:
        experiment = _ADAPTER.validate_python(sections)
    except ValidationError as error:
        right = {key: dict(value) if isinstance(value, dict) else value for key, value in sections.items()}
        for one in error.errors(include_url=False):
            section, *inside = map(str, one["loc"][:2])
            if inside and isinstance(right.get(section), dict):
                right[section].pop(inside[0], None)
            else:
                right.pop(section, None)
            place, field, line = _mistake(one)
            lines.setdefault(place, line)
            wrong.add(field)
        experiment = _ADAPTER.validate_python(right)
    found = [*lines.values(), *(line for rule in RULES if not rule.reads(wrong) for line in rule.lines(experiment))]
    if found:
        more = [f"and {len(found) - MOST_LINES} mistakes more"] if len(found) > MOST_LINES else []
        raise Refused("\n".join([*found[:MOST_LINES], *more]))
    return experiment


def _mistake(error: Any) -> tuple[str, str, str]:
    """Return place, field and line of text for one of pydantic's errors."""
    place, steps, part = "", [], schema()
    for step in error["loc"]:  # where the schema ends, pydantic names the types it tried, or an unknown key
        if isinstance(step, int) and "items" in part:
            place, part = f"{place}[{step}]", part["items"]
        elif step in part.get("properties", ()):
            steps.append(step)
            place, part = ".".join(steps), part["properties"][step]
            part = schema()["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        else:
            break
    if error["type"] == "unexpected_keyword_argument":
        key = error["loc"][-1] if error["loc"][-1].isprintable() else brief(error["loc"][-1])
        place = cut(".".join([*steps, key]))
        meant = get_close_matches(key, part["properties"], n=1)
        return place, ".".join([*steps, *meant]), f"{place}: no such key{suggestion(key, part['properties'])}"
    if error["type"] == "value_error":  # a Mistake, which has its own text
        return place, ".".join(steps), f"{place}: {error['ctx']['error']}"
    return place, ".".join(steps), f"{place}: received {brief(error['input'])}, expected {words(part)}"


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of an experiment file."""
    found = _ADAPTER.json_schema(schema_generator=_Schema)
    for section in (found, *found["$defs"].values()):
        for field in section["properties"].values():
            if "$ref" in field:
                del field["default"]  # each of its fields has a default
            else:
                field["title"] = words(field)
    return {"$schema": GenerateJsonSchema.schema_dialect, **found}


class _Schema(GenerateJsonSchema):
    """A generator of JSON Schema with defaults as written in a file, and titles that say which values are valid."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        return plain(dft)


def words(part: dict[str, Any]) -> str:
    """Return in words which values are valid, from a part of the JSON Schema.

    >>> words({"type": "integer", "minimum": 1, "maximum": 9}), words({"type": "number", "exclusiveMinimum": 0})
    ('a whole number, at least 1, at most 9', 'a number, more than 0')
    """
    if "properties" in part:
        return f"a section with keys {some(list(part['properties']))}"
    if "title" in part:
        return part["title"]
    if "anyOf" in part:
        return ", or ".join(map(words, part["anyOf"]))
    if "enum" in part:
        return f"one of {', '.join(part['enum'])}"
    if "const" in part:
        return str(part["const"])
    if part["type"] == "array":
        filled, once = " that is not empty" * ("minItems" in part), ", each value once" * ("uniqueItems" in part)
        return f"a list{filled}{once}: {words(part['items'])}"
    kind = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "text"}
    limits = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most", "exclusiveMaximum": "below"}
    return kind[part["type"]] + "".join(f", {word} {part[key]}" for key, word in limits.items() if key in part)
