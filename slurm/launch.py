"""The submission of a chain's jobs through submitit. Each runs the supervisor with the command of the plain script.

submitit only launches: files and squeue say what is done and what runs. It pickles the name of a class below and two
strings, never code or weights, so a task that waits runs the program as installed when it starts.

How submitit is set up, and why (docs/architecture.md): its Python is the batch process itself, with neither bash nor
srun in between, so that SLURM's warning reaches the supervisor alone; its own handlers, which would requeue by
themselves, are replaced inside the call; the end is SystemExit, so that no result is pickled and the job keeps the
status of its work.
"""

import io
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from slurm import packing, queue, sbatch
from slurm.sbatch import Job
from slurm.supervise import supervise
from sweep.errors import Refused
from sweep.experiment import file as experiment_file

# options of a job that submitit has other names for, or sets itself
RENAMED = ("job-name", "array", "output", "open-mode", "nodes", "ntasks")


@dataclass(frozen=True)
class Task:
    """A job or array element: an experiment's folder, and one or more trainings, or masks, report or rest."""

    folder: str
    name: str

    def __call__(self) -> NoReturn:
        folder = Path(self.folder)
        names = self.name.split()
        experiment = packing.settled(experiment_file.load(folder / "experiment.yaml"), folder.parent, len(names))
        name = f"{folder.name}-{self.name}" if self.name in sbatch.SINGLE else names[0]
        command = sbatch.command_of(experiment, folder, self.name)
        _work(f"exec {command}", sbatch.logs_of(folder.parent) / f"{name}.out")


@dataclass(frozen=True)
class Command:
    """A job, or array element, that is not part of a sweep: shell lines and the log."""

    command: str
    log: str

    def __call__(self) -> NoReturn:
        _work(self.command, Path(self.log))


def _work(command: str, log: Path) -> NoReturn:
    """Run a command under the supervisor, with the installation that submitted it, and exit with its status."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    sys.exit(supervise(["bash", "-c", command], log))


def submit(job: Job, folder: Path, after: str = "") -> str:
    """Submit a job of the chain through submitit and return its id. `after`: its dependencies."""
    from submitit.core.utils import FailedJobError

    pickles = folder / "slurm" / "submitit"  # anyone who can write there can run code as the submitting user
    private_name(pickles)
    pickles.mkdir(mode=0o700, parents=True, exist_ok=True)
    pickles.chmod(0o700)
    with _executor(job, pickles, after) as executor:
        try:
            # submitit prints sbatch's message and raises it too
            with redirect_stderr(io.StringIO()):
                started = executor.submit_array(_tasks(job, folder))
        except FailedJobError as error:
            raise queue.refusal("sbatch", str(error)) from None
    return queue.parent_of(str(started[0].job_id))


def _tasks(job: Job, folder: Path) -> list[Task] | list[Command]:
    """Return what each array element does. submitit counts elements from 0, so jobs in OTHERS set their own numbers."""
    if job.part not in sbatch.OTHERS:
        return [Task(str(folder), " ".join(names)) for names in job.elements or [(job.part,)]]
    own = [(f"export SLURM_ARRAY_TASK_ID={number}; ", number) for (number,) in job.elements] or [("", "")]
    return [Command(f"{told}exec {job.command}", str(job.log).replace("%a", number)) for told, number in own]


def sent(job: Job, folder: Path) -> str:
    """Return the batch script that `submit` would give to sbatch, so that checks test what will be sent."""
    with _executor(job, folder, "") as executor:
        return str(executor._make_submission_file_text("true", "check"))


@contextmanager
def _executor(job: Job, place: Path, after: str) -> Iterator[Any]:
    """Yield submitit's executor with the options of a job; `place` is its folder of pickles."""
    import submitit

    asked = {name: value or True for name, value in job.options.items() if name not in RENAMED}
    if "time" not in asked:  # submitit always writes a time limit, so write the partition's own
        asked["time"] = queue.default_time(job.options.get("partition", ""))
    if after:
        asked["kill-on-invalid-dep"] = "yes"
    with queue.without_own_job():
        try:
            executor = submitit.SlurmExecutor(place, python=f"exec {shlex.quote(sys.executable)}")
        except RuntimeError:
            raise Refused("srun: no such program here; expected a machine that can submit to SLURM") from None
        executor.update_parameters(
            # else submitit names every job "submitit" and sets a workload key of that name
            job_name=job.options["job-name"], wckey=None, nodes=1, ntasks_per_node=1,
            array_parallelism=job.at_a_time or len(job.elements) or 1, use_srun=False, stderr_to_stdout=True,
            setup=["trap '' USR1 USR2", "set -eo pipefail", *job.setup], dependency=after or None,
            additional_parameters=asked,
        )  # fmt: skip
        yield executor


def private_name(folder: Path) -> None:
    """Raise Refused if a folder's name has characters that submitit and SLURM would expand."""
    if set("%\\") & set(str(folder)):
        raise Refused(f"{folder}: submitit takes no % and no backslash in the name of a folder; move the results, or "
                      "submit the scripts of `lottery sbatch` by hand")  # fmt: skip
