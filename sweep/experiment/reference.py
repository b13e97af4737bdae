"""The generator of docs/experiment.md: every field of an experiment file, from the JSON Schema.

python -m sweep.experiment.reference > docs/experiment.md
"""

from __future__ import annotations

import dataclasses
from typing import Any

from sweep.experiment.fields import Experiment, Section
from sweep.experiment.reading import schema

HEAD = """# The experiment file

One YAML file asks one question. Everything has a default; what is not written has it. Any field can be changed on the
command line: `recipe.epochs=30 seeds=[0,1]`. Invalid keys and values are all
reported before anything is written.

    model: {name: resnet20}
    data: {name: cifar10, path: cifar-10-python.tar.gz, pad: 4, flip: true}
    recipe: {epochs: 30, batch: 128, learning_rate: 0.1, nesterov: true, weight_decay: 0.0001}
    prune: {quantiles: [0.8, 0.9], rewind: [0, 2ep], controls: [fresh, shuffled]}
    seeds: [0, 1, 2]

Points of training are written `0`, `2ep` (epochs), `500it` (steps), `end`. Pruning methods are written `score`,
`score/allocation` or `score@point` ([methods.md](methods.md)). Fields marked *place* say where and how fast, not what:
they are not part of the names of trainings, and may be changed at any time. This page is made from the program
(`python -m sweep.experiment.reference`), as is the JSON Schema for editors: `lottery schema > schema.json`, and
`# yaml-language-server: $schema=schema.json` as the first line of a file beside it.
"""


def page() -> str:
    """Return docs/experiment.md."""
    parts = [HEAD, "## Top level\n", _table(Experiment(), schema())]
    for field in dataclasses.fields(Experiment):
        if isinstance(field.default, Section):
            place = "" if field.metadata.get("identity", True) else " (*place*, all of it)"
            part = schema()["$defs"][type(field.default).__name__]
            parts_of = dataclasses.fields(field.default)  # type: ignore[arg-type]
            inside = [one.name for one in parts_of if isinstance(one.default, Section)]
            parts += [f"## `{field.name}:`{place}\n", _table(field.default, part)]
            parts += [f"and `{'`, `'.join(inside)}` with the fields of these sections above.\n"] if inside else []
    return "\n".join(parts)


def _table(section: Section, part: dict[str, Any]) -> str:
    lines = ["| field | default | values | |", "|---|---|---|---|"]
    for field in dataclasses.fields(section):  # type: ignore[arg-type]
        if not isinstance(field.default, Section):
            place = "" if field.metadata.get("identity", True) else " *place*"
            said = part["properties"][field.name]
            about = said["description"].translate({ord("|"): r"\|", ord("*"): r"\*"})
            lines.append(f"| `{field.name}`{place} | {_value(field.default)} | {said['title']} | {about} |")
    return "\n".join(lines) + "\n"


def _value(default: Any) -> str:
    if isinstance(default, tuple):
        return f"`[{', '.join(map(str, default))}]`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if default != "" else "empty"


if __name__ == "__main__":
    print(page(), end="")
