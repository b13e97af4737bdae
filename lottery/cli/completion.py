"""Shell completion: the experiments that exist, and the trainings of the experiment already typed."""

from __future__ import annotations

from pathlib import Path

from cyclopts.completion import CompletionContext

from sweep.errors import Refused
from sweep.work.find import read_home, shipped


def experiments(context: CompletionContext) -> list[str]:
    """Return names of experiments with results and of shipped ones, YAML files, and folders that match the word."""
    begun = Path(context.incomplete)
    folder = begun if context.incomplete.endswith("/") else begun.parent
    files = [path for place in {Path(), folder} for path in place.glob("*.y*ml")]
    hidden = context.incomplete.rpartition("/")[2].startswith(".")
    folders = [f"{path}/" for path in folder.glob("*/") if hidden or not path.name.startswith(".")]
    known = [path.parent.name for path in Path(context["results"].value).glob("*/experiment.yaml")]
    return sorted({*known, *shipped(), *map(str, files), *folders})


def trainings(context: CompletionContext) -> list[str]:
    """Return the trainings of the experiment typed before."""
    experiment, results = context["experiment"].raw or "", Path(context["results"].value)
    try:
        return [training.slug for training in read_home(experiment, (), results).graph]
    except (Refused, OSError):  # an invalid file: completion shows no errors
        return []
