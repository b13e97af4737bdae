"""How values are written in an experiment file, as types for pydantic, which is imported only when needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from sweep.errors import Refused, brief

Reads = Callable[[Any], Any] | None


class Mistake(Refused, ValueError):
    """An invalid value and what would be right, as an error that pydantic collects."""

    def __str__(self) -> str:
        received, right = self.args
        return f"received {brief(received)}, expected {right}"


class Form:
    """How a value is written in a file, as an annotation for pydantic.

    `read` converts the raw value before its type is checked and `check` validates it afterwards; either may raise
    Mistake. `limits` are pydantic's limits of the type. `words` say what would be right. `json` is added to the JSON
    Schema or, if it has anyOf or enum, replaces it.
    """

    def __init__(
        self, read: Reads = None, words: str = "", json: Any = None, check: Reads = None, **limits: Any
    ) -> None:
        self.read, self.check, self.limits = read, check, limits
        self.json = (json or {}) | ({"title": words} if words else {})

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        schema = innermost = handler(source)
        while "schema" in innermost:  # limits belong to the innermost type
            innermost = innermost["schema"]
        innermost.update(self.limits)
        if self.read:
            schema = core_schema.no_info_before_validator_function(self.read, schema)
        return core_schema.no_info_after_validator_function(self.check, schema) if self.check else schema

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return ({} if {"anyOf", "enum"} & self.json.keys() else handler(schema)) | self.json


def among(registry: Iterable[str]) -> Form:
    """Return the form of a word that must be in a registry."""
    words = list(registry)

    def check(value: str) -> str:
        if value not in words:
            raise Mistake(value, f"one of {', '.join(words)}")
        return value

    return Form(json={"enum": words}, check=check)


def _once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) < len(values):
        raise Mistake([str(value) for value in values], "each value once")
    return values


def _some(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise Mistake([], "at least one")
    return values


def _whole(value: Any) -> Any:
    """Return 30 for the text 030: YAML reads it as text, because an account may be 0123."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"[-+]?0[0-9]{1,17}", value) else value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return value
    try:
        # YAML 1.1 reads 1e-4 as text; as ASCII bytes, because float() takes the digits of every script
        number = float(value.encode("ascii") if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return value
    return number + 0.0  # 0.0 for -0.0, which would change the name of the training


def _off(value: Any) -> Any:
    """Return "off" for False: YAML 1.1 reads off as a boolean."""
    return "off" if value is False else value


def _switch(value: Any) -> Any:
    return "on" if value is True else _off(value)


def _numbered(words: str, pattern: str) -> Form:
    """Return the form of a text that may look like a number, such as a partition, an account or minutes."""
    return Form(None, words, {"type": ["string", "integer"]}, pattern=pattern, coerce_numbers_to_str=True)


_NAME = r"^[\p{L}\p{N}_+][\p{L}\p{N}_.+-]*$"
_TIME = "^(N|(N-)?N(:N){1,2}|N-N)?$".replace("N", "[0-9]{1,9}")
ONCE = Form(json={"uniqueItems": True}, check=_once)  # a list without duplicates
SOME = Form(json={"minItems": 1}, check=_some)  # a list that is not empty
Whole = Annotated[int, Form(_whole, strict=True)]
Count = Annotated[Whole, Form(ge=1)] | Literal["auto"]
Number = Annotated[float, Form(_number, strict=True, allow_inf_nan=False)]
Line = Annotated[str, Form(_off, "one line of text, without control characters", pattern=r"^[^\x00-\x1f\x7f]*$")]
Name = Annotated[str, Form(None, "text of letters, digits, - and _, not first -: it names a folder", pattern=_NAME)]
Switch = Annotated[Literal["auto", "on", "off"], Form(_switch)]
Site = Annotated[str, _numbered("one word of letters, digits and _ . , : @ + -", "^[A-Za-z0-9_.,:@+-]*$")]
Time = Annotated[str, _numbered("minutes, H:M:S or D-H:M:S", _TIME)]
Memory = Annotated[str, _numbered("a size as SLURM writes it, such as 32G", "^[0-9]{1,9}[KMGT]?$")]
