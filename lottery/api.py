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
from slurm.backend import Backend
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
from sweep.report.findings import Findings, findings
from sweep.report.verdict import MARGIN, Verdict, verdicts
from sweep.work.find import open_home, read_home
from sweep.work.fitting import fitting
from sweep.work.worker import Failure

Table = Any  # a pandas.DataFrame; without pandas a list of dictionaries


class Sweep:
    """An experiment (a file, its results folder, or its name under `results`), with overrides as on the command line.

    Nothing is written until it runs. Invalid input raises sweep.errors.Refused.
    """

    def __init__(self, experiment: str | Path, *overrides: str, results: str | Path = "results") -> None:
        self._words = (str(experiment), overrides, Path(results))
        self.home: Home = read_home(*self._words)

    @property
    def experiment(self) -> Experiment:
        return self.home.experiment

    def __repr__(self) -> str:
        return f"{self.home.root}: {len(self.home.graph)} trainings, {len(missing(self.home))} of them missing"

    def run(
        self, jobs: int = 0, devices: int = 0, per_gpu: int = 1, quiet: bool = True, backend: Backend | None = None
    ) -> list[Failure]:
        """Train everything that is missing; return the failures. Run again to continue.

        On this machine, or by a `backend` of your own (docs/extending.md), which decides on jobs and devices itself.
        """
        if backend and (jobs or devices or per_gpu != 1):
            raise Refused("jobs, devices and per_gpu are for this machine; a backend has its own")
        if jobs < 0:
            raise Refused(f"jobs={jobs}: expected 1 or more, or 0 for as many as there is room for")
        jobs = jobs or places(per_gpu, devices)
        arrays.refuse_live(self.home)
        self._refuse()
        return (backend or Local(jobs, devices, quiet, per_gpu)).run(self._opened)

    def submit(self) -> dict[str, str]:
        """Submit everything that is missing to SLURM; return the job ids by name."""
        preflight.refuse_what_cannot_work(self.home)
        self._refuse()
        return {job.name: number for job, number in arrays.submit(self._opened)}

    def wait(self, quiet: bool = True) -> list[Failure]:
        """Wait until no job of the sweep waits or runs on SLURM; return what failed or was lost."""
        return Slurm(wait=True, quiet=quiet).waited(self._opened)

    def cancel(self, *tasks: str) -> list[str]:
        """Cancel the sweep's jobs on SLURM, or those of these tasks; return the cancelled tasks.

        A training that another experiment with live jobs needs is kept.
        """
        return cancel(self.home, tasks).gone

    def plan(self, on: str = "local", jobs: int = 1) -> Plan:
        """Return the trainings, which are done, their predicted time and cost; `on`: local, mpi or slurm."""
        return make_plan(self.home, on, jobs)

    def status(self) -> Table:
        """Return one row per training with its state, from files and, if it was submitted, from SLURM."""
        return _frame(status.standing_of(self.home).tasks)

    def results(self) -> Table:
        """Return the rows of results.csv: one per training, finished or not."""
        return _frame(collect(self.home))

    def verdicts(self, margin: float = MARGIN) -> Table:
        """Return one row per ticket: accuracy, difference from the dense network, verdict."""
        return _frame([_row_of(one) for one in self.findings(margin).verdicts])

    def answer(self, margin: float = MARGIN) -> str:
        """Return the sweep's answer in a sentence or two."""
        return self.findings(margin).answer

    def findings(self, margin: float = MARGIN) -> Findings:
        """Return the content of the report as one value: rows, verdicts and sentences."""
        return findings(self.home, margin)

    def charts(self) -> dict[str, Any]:
        """Return the figures of the report that finished trainings allow, as Altair charts by name."""
        from sweep.report.figures import charts

        found = self.findings()
        return charts(self.home, found.rows, self.experiment.name, step=found.steps)

    def best(self, margin: float = MARGIN) -> Ticket:
        """Return the best ticket: the sparsest that wins, else that matches, else that is not shown to be worse."""
        rows = collect(self.home)
        return Ticket(self.home, best(rows, verdicts(rows, margin), margin))

    def report(self, margin: float = MARGIN) -> list[Path]:
        """Write the page, results.csv, the LaTeX table and the figures; return their paths, the page first."""
        return write_report(self.home, margin)

    def _refuse(self) -> None:
        """Raise Refused if the sweep cannot be trained, before anything is written."""
        if missing(self.home):
            fitting(self.experiment)
        Runs(self.home.pool).refuse_replaced(*self.home.graph)

    @cached_property
    def _opened(self) -> Home:
        """Return the home of the experiment, with its folder created and up to date."""
        self.home = open_home(*self._words)
        return self.home


@dataclass(frozen=True)
class Ticket:
    """A trained ticket of a sweep: its description (`found`), and its weights as a model."""

    home: Home
    found: Best

    def model(self, probabilities: bool = True) -> Any:
        """Return the ticket as a Keras model that takes uint8 images; it can be trained further."""
        from sweep.data import open_dataset
        from sweep.export.subject import Wanted, subject_of

        training = self.home.training(self.found.training)
        subject = subject_of(self.home, training, open_dataset(training.data))
        return subject.keras_model(Wanted(probabilities=probabilities))


def _row_of(one: Verdict) -> dict[str, Any]:
    """Return a verdict as one row, with intervals beside the means."""
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
    except ImportError:  # pandas is optional
        return plain
    return pandas.DataFrame(plain)
