"""The sweep from Python, for notebooks and scripts: open, run or submit, wait, look. The command does the same.

from lottery import Sweep

sweep = Sweep("experiments/cifar10_resnet20.yaml", "data.path=cifar-10-python.tar.gz")
sweep.submit()
sweep.wait()
sweep.results()
sweep.charts()["accuracy"]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from slurm import arrays, preflight, status
from slurm.arrays import Slurm
from slurm.cancel import cancel
from slurm.local import Local, places
from slurm.plan import Plan, make_plan
from sweep.errors import Refused
from sweep.experiment import Experiment
from sweep.graph.home import Home
from sweep.graph.results import collect
from sweep.graph.runs import Runs
from sweep.graph.state import missing
from sweep.report import write_report
from sweep.report.best import Best, best
from sweep.report.figures import charts
from sweep.report.findings import Findings, findings
from sweep.report.verdict import MARGIN, Verdict, verdicts
from sweep.work.find import open_home, read_home
from sweep.work.fitting import fitting
from sweep.work.worker import Failure

Table = Any  # a pandas.DataFrame; without pandas a list of dictionaries


class Sweep:
    """An experiment (a file, its results folder, or its name under `results`) with fields changed as on the command
    line. Nothing is written until it runs. What cannot be used raises sweep.errors.Refused."""

    def __init__(self, experiment: str | Path, *overrides: str, results: str | Path = "results") -> None:
        self._words = (str(experiment), overrides, Path(results))
        self.home: Home = read_home(*self._words)

    @property
    def experiment(self) -> Experiment:
        return self.home.experiment

    def __repr__(self) -> str:
        return f"{self.home.root}: {len(self.home.graph)} trainings, {len(missing(self.home))} of them missing"

    def run(self, jobs: int = 0, devices: int = 0, per_gpu: int = 1, quiet: bool = True) -> list[Failure]:
        """Everything that is missing, on this machine; what failed. Run again to continue."""
        if jobs < 0:
            raise Refused(f"jobs={jobs}: expected 1 or more, or 0 for as many as there is room for")
        jobs = jobs or places(per_gpu, devices)
        arrays.refuse_live(self.home)
        self._refuse()
        return Local(jobs, devices, quiet, per_gpu).run(self._opened)

    def submit(self) -> dict[str, str]:
        """Everything that is missing, on SLURM; the numbers of the jobs."""
        preflight.refuse_what_cannot_work(self.home)
        self._refuse()
        return {job.name: number for job, number in arrays.submit(self._opened)}

    def wait(self, quiet: bool = True) -> list[Failure]:
        """Until nothing of it waits or runs on SLURM; what failed or was lost."""
        return Slurm(wait=True, quiet=quiet).waited(self._opened)

    def cancel(self, *tasks: str) -> list[str]:
        """Cancel what waits or runs on SLURM, or these tasks of it, and return what was cancelled.

        A training that another experiment under way wants too is left alone.
        """
        return cancel(self.home, tasks).gone

    def plan(self, on: str = "local", jobs: int = 1) -> Plan:
        """Return the trainings, what is done of them, their predicted time and cost; `on`: local, mpi or slurm."""
        return make_plan(self.home, on, jobs)

    def status(self) -> Table:
        """Return one row per training: where it stands, from files and, where it was submitted, from SLURM."""
        return _frame(status.standing_of(self.home).tasks)

    def results(self) -> Table:
        """The rows of results.csv: one per training, finished or not."""
        return _frame(collect(self.home))

    def verdicts(self, margin: float = MARGIN) -> Table:
        """Return one row per ticket: accuracy, difference to the dense network, verdict."""
        return _frame([_row_of(one) for one in self.findings(margin).verdicts])

    def answer(self, margin: float = MARGIN) -> str:
        """Return the verdict in a sentence or two."""
        return self.findings(margin).answer

    def findings(self, margin: float = MARGIN) -> Findings:
        """Return what the report says, as one value: rows, verdicts, and the sentences above them."""
        return findings(self.home, margin)

    def charts(self) -> dict[str, Any]:
        """The figures of the report as Altair charts, as far as what is done allows."""
        return charts(self.home, collect(self.home), self.experiment.name)

    def best(self, margin: float = MARGIN) -> Ticket:
        """Return the ticket to take: the sparsest that wins, else the sparsest that is not shown to be worse."""
        rows = collect(self.home)
        return Ticket(self.home, best(rows, verdicts(rows, margin), margin))

    def report(self, margin: float = MARGIN) -> list[Path]:
        """Write the page, results.csv, the LaTeX table and the figures; their paths, the page first."""
        return write_report(self.home, margin)

    def _refuse(self) -> None:
        """What cannot be trained, before anything is written."""
        if missing(self.home):
            fitting(self.experiment)
        Runs(self.home.pool).refuse_replaced(*self.home.graph)

    @cached_property
    def _opened(self) -> Home:
        """Return the home of the experiment with its folder made ready for writing."""
        self.home = open_home(*self._words)
        return self.home


@dataclass(frozen=True)
class Ticket:
    """A trained ticket of a sweep: what is known of it (`found`), and its weights as a model."""

    home: Home
    found: Best

    def model(self, probabilities: bool = True) -> Any:
        """Return the ticket as a Keras model that takes uint8 pictures; it can be trained on."""
        from models.keras_model import keras_model
        from sweep.data import open_dataset
        from sweep.export.subject import subject_of

        training = self.home.training(self.found.training)
        subject = subject_of(self.home, training, open_dataset(training.data))
        return keras_model(subject.network, subject.weights, subject.scale, subject.offset, probabilities)


def _row_of(one: Verdict) -> dict[str, Any]:
    """A verdict as one row: means with their intervals beside them."""
    out = asdict(one) | {"accuracy": one.accuracy.mean, "seeds": one.accuracy.seeds}
    compared = {"difference": one.difference, **{f"against_{kind}": found for kind, found in one.controls.items()}}
    del out["controls"]
    for name, found in compared.items():
        out |= {name: found.mean if found else None, f"{name}_low": found.low if found else None,
                f"{name}_high": found.high if found else None}  # fmt: skip
    return out


def _frame(rows: Sequence[Any]) -> Table:
    plain = [row if isinstance(row, dict) else asdict(row) for row in rows]
    try:
        import pandas
    except ImportError:  # not needed for anything else
        return plain
    return pandas.DataFrame(plain)
