"""submitit starts the jobs of a chain. What runs in each is the supervisor, with the command of the plain script.

submitit launches and nothing more: files and squeue say what is done and what lives. What is pickled is the name of the
class below and two words, never code or weights, so a task that waits runs the program as it is when its turn comes.

How submitit is set up, and why (docs/architecture.md): its Python is the batch process itself, with neither bash nor
srun in between, so that SLURM's warning reaches the supervisor alone; its own handlers, which would requeue by
themselves, are replaced inside the call; the end is SystemExit, so that no result is pickled and the job keeps the
status of its work.
"""

from __future__ import annotations

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
from sweep.experiment import Cluster
from sweep.experiment import file as experiment_file

OTHERS = ("tune", "prepare", "summary")  # jobs that are no part of a sweep


@dataclass(frozen=True)
class Task:
    """A job or an array element: the folder of an experiment, and a training (or several), or masks, report, rest."""

    folder: str
    name: str

    def __call__(self) -> NoReturn:
        folder = Path(self.folder)
        names = self.name.split()
        experiment = packing.settled(experiment_file.load(folder / "experiment.yaml"), folder.parent, len(names))
        name = f"{folder.name}-{self.name}" if self.name in sbatch.SINGLE else names[0]
        log = sbatch.logs_of(folder.parent) / f"{name}.out"
        _find_lottery()
        sys.exit(supervise(["bash", "-c", f"exec {sbatch.command_of(experiment, folder, self.name)}"], log))


@dataclass(frozen=True)
class Scripted:
    """A job that is no part of a sweep: the path of its plain script, and the number of the array element it would be.

    submitit numbers the elements of an array from 0 on; what the script calls its array index is told to its command.
    """

    script: str
    index: str

    def __call__(self) -> NoReturn:
        text = Path(self.script).read_text()
        command = text.splitlines()[-1].removeprefix("exec lottery supervise ")
        log = Path(options_of(text)["output"].replace("%a", self.index).replace("%%", "%"))
        _find_lottery()
        own = f"export SLURM_ARRAY_TASK_ID={self.index}; " if self.index else ""
        sys.exit(supervise(["bash", "-c", f"{own}exec {command}"], log))


def submit(job: Job, folder: Path, cluster: Cluster, after: str) -> str:
    """Submit a job of the chain through submitit and return its number. It asks for what the plain script asks for."""
    from submitit.core.utils import FailedJobError

    names = [" ".join(element) for element in job.elements] or ["" if job.part in OTHERS else job.part]
    script = str(folder / "slurm" / f"{job.name}.sh")
    tasks = [Scripted(script, name) if job.part in OTHERS else Task(str(folder), name) for name in names]
    with _executor(job, private(folder / "slurm" / "submitit"), cluster, after) as executor:
        try:
            # submitit prints what sbatch says besides raising it
            with redirect_stderr(io.StringIO()):
                started = executor.submit_array(tasks)
        except FailedJobError as error:
            raise queue.refusal("sbatch", str(error)) from None
    return str(started[0].job_id).partition("_")[0]


def sent(job: Job, folder: Path, cluster: Cluster) -> str:
    """Return the batch script that `submit` would hand to sbatch, so that a check tests what will be sent."""
    with _executor(job, folder, cluster, "") as executor:
        return str(executor._make_submission_file_text("true", "check"))


@contextmanager
def _executor(job: Job, place: Path, cluster: Cluster, after: str) -> Iterator[Any]:
    """Yield submitit's executor with the options of the plain script; `place` is its folder of pickles."""
    import submitit

    asked = options_of(job.text)
    throttle = int(asked.pop("array", "0").partition("%")[2] or len(job.elements) or 1)
    if "time" not in asked:  # submitit always writes one; the partition's would be taken otherwise
        asked["time"] = queue.default_time(cluster.partition)
    asked |= {"kill-on-invalid-dep": "yes"} if after else {}
    for name in ("output", "open-mode", "nodes", "ntasks"):
        asked.pop(name, None)
    with without_own_job():
        try:
            executor = submitit.SlurmExecutor(place, python=f"exec {shlex.quote(sys.executable)}")
        except RuntimeError:
            raise Refused("srun: no such program here; expected a machine that can submit to SLURM") from None
        executor.update_parameters(
            # submitit would name every job "submitit" and charge it to a workload key of that name
            job_name=asked.pop("job-name"), wckey=None,
            nodes=1, ntasks_per_node=1, array_parallelism=throttle, use_srun=False, stderr_to_stdout=True,
            setup=["trap '' USR1 USR2", "set -eo pipefail", *cluster.setup], dependency=after or None,
            additional_parameters={key: True if value == "" else value for key, value in asked.items()},
        )  # fmt: skip
        yield executor


def options_of(text: str) -> dict[str, str]:
    """What a plain script asks SLURM for."""
    words = [shlex.split(line.removeprefix("#SBATCH "))[0] for line in text.splitlines() if line[:7] == "#SBATCH"]
    pairs = (word.removeprefix("--").partition("=") for word in words)
    return {name: value for name, _, value in pairs}


def _find_lottery() -> None:
    """The command of the installation that submitted this."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def private(folder: Path) -> Path:
    """A folder for pickles: whoever can write there runs code as the one who submits."""
    private_name(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def private_name(folder: Path) -> None:
    """Refuses what submitit and SLURM would expand."""
    if set("%\\") & set(str(folder)):
        raise Refused(f"{folder}: submitit takes no % and no backslash in the name of a folder; move the results, or "
                      "submit the scripts of `lottery sbatch` by hand")  # fmt: skip


@contextmanager
def without_own_job() -> Iterator[None]:
    """Inside a job, its own SLURM_… would be defaults of the jobs it submits, and submitit would look for its task."""
    own = {name: value for name, value in os.environ.items() if name.startswith("SLURM_")}
    own.pop("SLURM_CONF", None)
    for name in own:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(own)
