"""A search for a better dense recipe: a file in the format of wandb's sweeps, and its trials.

The trials of `grid` and `random` are a function of the file and the experiment, so they are the same in every process;
`bayes` chooses by the results so far (Optuna's tree-structured Parzen estimator). A trial is an experiment of its own,
given as overrides of the one that is tuned.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sweep.errors import Refused, brief
from sweep.experiment import Experiment
from sweep.experiment.file import read_yaml
from sweep.graph.plan import dense_of

METRICS = ("validation_top1", "validation_top5", "validation_loss")
METHODS = ("grid", "random", "bayes")
Trial = tuple[str, ...]  # overrides

# (u, low, high) → value, u uniform in [0, 1): wandb's distributions of these names
DISTRIBUTIONS: dict[str, Callable[[float, float, float], float]] = {
    "uniform": lambda share, low, high: low + share * (high - low),
    "int_uniform": lambda share, low, high: math.floor(low + share * (high + 1 - low)),
    "log_uniform_values": lambda share, low, high: math.exp(math.log(low) + share * math.log(high / low)),
}


@dataclass(frozen=True)
class Search:
    """A search in the format of wandb's sweeps."""

    content: dict[str, Any]  # the whole file
    method: str
    metric: str
    falling: bool  # whether a lower metric is better
    parameters: dict[str, Any]  # what to vary: the values or the distribution of each field

    @property
    def count(self) -> int:
        """Return the number of trials."""
        whole = (
            math.prod(len(_values(choice)) for choice in self.parameters.values()) if self.method == "grid" else None
        )
        return min(filter(None, (self.content.get("run_cap"), whole)))

    def hash(self, experiment: Experiment) -> str:
        text = json.dumps([dense_of(experiment, experiment.seeds[0]).digest, self.content], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]


def read(path: Path) -> Search:
    """Return the search in a YAML file; raise Refused if it is invalid."""
    try:
        raw = read_yaml(path.read_text())
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}; expected a search file (--search FILE), such as "
                      "experiments/sweeps/dry_run.yaml (docs/commands.md)") from None  # fmt: skip
    except ValueError as error:  # not UTF-8; read_yaml refuses what is not YAML
        raise Refused(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    except Refused as error:
        raise Refused(f"{path}: {error}") from None

    def need(ok: bool, where: str, received: object, right: str) -> None:
        if not ok:
            raise Refused(f"{path}: {where}: received {brief(received)}, expected {right}")

    need(isinstance(raw, dict), "the file", raw, "method:, metric:, parameters:")
    unknown = set(raw) - {"method", "metric", "parameters", "run_cap", "name", "description"}
    need(not unknown, "keys", sorted(map(str, unknown)), "method, metric, parameters, run_cap, name, description")
    need(raw.get("method") in METHODS, "method", raw.get("method"), "one of " + ", ".join(METHODS))
    metric = raw.get("metric")
    named = isinstance(metric, dict) and metric.get("name") in METRICS
    need(named, "metric", metric, "name: one of " + ", ".join(METRICS) + " (the test images stay out of the choice)")
    need(metric.get("goal") in ("maximize", "minimize"), "metric.goal", metric.get("goal"), "maximize or minimize")
    cap = raw.get("run_cap")
    need(cap is None or (isinstance(cap, int) and cap > 0), "run_cap", cap, "a number of trials")
    end = f"a number of trials, as {raw['method']} has no end"
    need(cap is not None or raw["method"] == "grid", "run_cap", cap, end)
    parameters, fields = raw.get("parameters"), "fields such as recipe.learning_rate:"
    need(isinstance(parameters, dict) and bool(parameters), "parameters", parameters, fields)
    for name, choice in parameters.items():
        where = f"parameters.{name}"
        need(isinstance(choice, dict), where, choice, "value:, values: or distribution:")
        if "distribution" in choice:
            low, high = choice.get("min"), choice.get("max")
            need(str(choice["distribution"]) in DISTRIBUTIONS, f"{where}.distribution", choice["distribution"],
                 "one of " + ", ".join(DISTRIBUTIONS))  # fmt: skip
            numbers = all(isinstance(n, int | float) and not isinstance(n, bool) for n in (low, high))
            need(numbers and low < high, where, choice, "min below max")
            need(low > 0 or choice["distribution"] != "log_uniform_values", f"{where}.min", low, "more than 0")
            need(raw["method"] != "grid", where, choice, "value: or values: in a grid")
        else:
            listed = isinstance(choice.get("values"), list) and bool(choice["values"])
            need("value" in choice or listed, where, choice, "value:, values: or distribution:")
    return Search(raw, raw["method"], metric["name"], metric["goal"] == "minimize", parameters)


def trials(search: Search, experiment: Experiment) -> list[Trial]:
    """Return the trials that are known in advance, in order: all of them, or none for `bayes`."""
    if search.method == "bayes":
        return []
    if search.method == "grid":
        rows = itertools.product(*map(_values, search.parameters.values()))
        return [_trial(dict(zip(search.parameters, row, strict=True))) for row in itertools.islice(rows, search.count)]
    stream = np.random.Generator(np.random.Philox(int(search.hash(experiment), 16)))
    return [
        _trial({name: _draw(choice, stream) for name, choice in search.parameters.items()}) for _ in range(search.count)
    ]


def chosen(search: Search, experiment: Experiment, before: Mapping[Trial, float | None]) -> Trial:
    """Return the next trial of `bayes`, given the earlier ones with their metrics (None: not known yet)."""
    try:
        import optuna
    except ImportError:
        raise Refused("method bayes: Optuna is not installed; expected pip install 'lottery-sweep[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space: dict[str, Any] = {}
    for name, choice in search.parameters.items():
        kind = choice.get("distribution")
        if kind == "int_uniform":
            space[name] = optuna.distributions.IntDistribution(choice["min"], choice["max"])
        elif kind:
            log = kind == "log_uniform_values"
            space[name] = optuna.distributions.FloatDistribution(choice["min"], choice["max"], log=log)
        else:
            space[name] = optuna.distributions.CategoricalDistribution(range(len(_values(choice))))
    sampler = optuna.samplers.TPESampler(seed=int(search.hash(experiment)[:6], 16) + len(before), constant_liar=True)
    study = optuna.create_study(direction="minimize" if search.falling else "maximize", sampler=sampler)
    state = optuna.trial.TrialState
    for trial, value in before.items():
        known = dict(word.split("=", 1) for word in trial)
        numbers = {name: _number(search.parameters[name], known[name]) for name in space}
        under = state.RUNNING if value is None else state.COMPLETE
        study.add_trial(optuna.trial.create_trial(params=numbers, distributions=space, value=value, state=under))
    found = study.ask(space).params
    return _trial({name: found[name] if "distribution" in choice else _values(choice)[found[name]]
                   for name, choice in search.parameters.items()})  # fmt: skip


def _values(choice: dict[str, Any]) -> list[Any]:
    return [choice["value"]] if "value" in choice else list(choice["values"])


def _draw(choice: dict[str, Any], stream: np.random.Generator) -> Any:
    if "distribution" in choice:
        return DISTRIBUTIONS[choice["distribution"]](stream.random(), choice["min"], choice["max"])
    values = _values(choice)
    return values[int(stream.integers(len(values)))]


def _number(choice: dict[str, Any], text: str) -> float:
    """Return a trial's value as Optuna has it: a number within bounds (texts are rounded), or the index of a choice."""
    if "distribution" in choice:
        return min(max(json.loads(text), choice["min"]), choice["max"])
    return [_text(value) for value in _values(choice)].index(text)


def _trial(given: dict[str, Any]) -> Trial:
    """Return a trial as overrides.

    >>> _trial({"recipe.learning_rate": 0.123456789, "recipe.nesterov": True})
    ('recipe.learning_rate=0.123457', 'recipe.nesterov=true')
    """
    return tuple(f"{name}={_text(value)}" for name, value in given.items())


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else json.dumps(value)
