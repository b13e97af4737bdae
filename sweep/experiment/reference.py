"""docs/experiment.md: every field of an experiment file, from the dataclasses and their comments.

python -m sweep.experiment.reference > docs/experiment.md
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from models import NETWORKS
from sweep.experiment import fields
from sweep.experiment.controls import CONTROLS
from sweep.experiment.file import WORDS
from sweep.experiment.sources import SOURCES

HEAD = """# The experiment file

One YAML file asks one question. Everything has a default; what is not written has it. Any field can be changed on the
command line: `recipe.epochs=30 seeds=[0,1]`. A wrong key or value is refused in one line before anything is written.

    model: {name: resnet20}
    data: {name: cifar10, path: cifar-10-python.tar.gz, pad: 4, flip: true}
    recipe: {epochs: 30, batch: 128, learning_rate: 0.1, nesterov: true, weight_decay: 0.0001}
    prune: {quantiles: [0.8, 0.9], rewind: [0, 2ep], controls: [fresh, shuffled]}
    seeds: [0, 1, 2]

Points of training are written `0`, `2ep` (epochs), `500it` (steps), `end`. Pruning methods are written `score`,
`score/allocation` or `score@point` ([methods.md](methods.md)). Fields marked *place* say where and how fast, not what:
they are not part of the names of trainings, and may be changed at any time. This page is made from the program
(`python -m sweep.experiment.reference`).
"""
SECTIONS = {
    "model": fields.Model,
    "data": fields.Data,
    "recipe": fields.Recipe,
    "prune": fields.Prune,
    "cluster": fields.Cluster,
    "track": fields.Track,
}


def page() -> str:
    parts = [HEAD, "## Top level\n", _table(fields.Experiment, only=("name", "note", "seeds"))]
    for name, section in SECTIONS.items():
        place = " (*place*, all of it)" if name in ("cluster", "track") else ""
        parts += [f"## `{name}:`{place}\n", _table(section)]
    return "\n".join(parts)


def _table(section: type, only: tuple[str, ...] = ()) -> str:
    comments, hints = comments_of(section), get_type_hints(section)
    lines = ["| field | default | values | |", "|---|---|---|---|"]
    for field in dataclasses.fields(section):
        if only and field.name not in only:
            continue
        place = "" if field.metadata.get("identity", True) else " *place*"
        text = EXTRA.get((section.__name__, field.name)) or comments.get(field.name, "")
        kind = _kind(hints[field.name])
        lines.append(
            f"| `{field.name}`{place} | {_value(field.default)} | {kind} | {text.replace('|', chr(92) + '|')} |"
        )
    return "\n".join(lines) + "\n"


# what stands in no comment, because the name of the field says it to who reads the code
EXTRA = {
    ("Model", "name"): f"of the network: {', '.join(NETWORKS)}",
    ("Data", "name"): "; ".join(f"`{name}`: {source.about}" for name, source in SOURCES.items()),
    ("Experiment", "name"): "of the results folder; the file's name where it is not given",
    ("Experiment", "seeds"): "one dense run each, with all its tickets; three or more for a verdict",
    ("Recipe", "epochs"): "passes over the training images",
    ("Recipe", "learning_rate"): "at its peak",
    ("Recipe", "schedule"): "of the learning rate",
    ("Recipe", "optimizer"): "SGD with momentum, or AdamW",
    ("Recipe", "label_smoothing"): "share of the target spread over all classes; 0 = off",
    ("Recipe", "precision"): "of the arithmetic; weights are always float32",
    ("Prune", "controls"): f"beside the tickets, each differs in one thing (methods.md): {', '.join(CONTROLS)}",
    ("Cluster", "partition"): "of SLURM; empty: the site's default",
    ("Cluster", "account"): "of SLURM; empty: the user's default",
    ("Cluster", "qos"): "of SLURM; empty: the site's default",
    ("Cluster", "nodes"): "with gpus_per_node: how many cells run at a time",
    ("Cluster", "gpus_per_node"): "that the dense run gets, as far as they can share a batch",
    ("Cluster", "cpus_per_gpu"): "CPU cores asked for with every GPU",
    ("Cluster", "memory_per_gpu"): "memory asked for with every GPU, as SLURM writes it",
    ("Track", "mode"): "wandb: not at all, into files, or to its server",
    ("Track", "project"): "of wandb",
}


def comments_of(section: type) -> dict[str, str]:
    """The comment behind each field, in its line or in the line that closes it."""
    out, name = {}, ""
    for line in inspect.getsource(section).splitlines():
        found = re.match(r"    (\w+): ", line)
        name = found[1] if found else name
        comment = re.search(r"  # (.*)$", line)
        if name and comment and name not in out:
            out[name] = comment[1]
    return out


def _kind(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(hint))
    if get_origin(hint) is Union:
        return " or ".join(map(_kind, get_args(hint)))
    if get_origin(hint) is tuple:
        return f"list of {_kind(get_args(hint)[0])}"
    if hint in WORDS:
        return {"Point": "points", "Method": "methods"}[hint.__name__]
    return {int: "whole number", float: "number", bool: "true, false", str: "text"}[hint]


def _value(default: Any) -> str:
    if isinstance(default, tuple):
        return f"`[{', '.join(map(str, default))}]`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if default != "" else "empty"


if __name__ == "__main__":
    print(page(), end="")
