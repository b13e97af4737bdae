"""The commands that train: dry-run, train, sweep."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from lottery.cli import show
from lottery.cli.completion import trainings
from lottery.cli.find import RESULTS, SHIPPED, Devices, ExperimentName, On, Override, Results, checked_home, open_home
from lottery.cli.masks import summary
from lottery.cli.plan import scripts
from lottery.cli.say import failed, method
from lottery.cli.show import Verbose
from slurm import arrays, preflight
from slurm.arrays import Slurm
from slurm.backend import Backend
from slurm.cancel import earlier_plan
from slurm.jobs import live as live_jobs
from slurm.local import Local, places
from slurm.mpi import Mpi, world
from sweep.data import place_of, refuse_absent
from sweep.data.folder import left_out
from sweep.data.listing import listing
from sweep.errors import Refused, command
from sweep.experiment import Cluster, Experiment
from sweep.experiment import file as experiment_file
from sweep.experiment.sources import SOURCES
from sweep.graph.home import Home
from sweep.graph.runs import Runs
from sweep.graph.state import missing
from sweep.hardware import gpu_name
from sweep.progress import console
from sweep.training.schedule import check_devices
from sweep.work.fitting import fitting
from sweep.work.worker import Failure, Worker, record_failure

Jobs = Annotated[int, Parameter(help="Trainings at a time, each in its own process; 1 = all in this one")]
PerGpu = Annotated[int, Parameter(help="Trainings at a time on one GPU, under NVIDIA's MPS")]


def dry_run(*overrides: Override, results: Results = RESULTS, jobs: Jobs = 0, verbose: Verbose = False) -> int:
    """Run a whole sweep in minutes on this machine, with data that comes with the installation.

    Example: lottery dry-run
    """
    home = open_home(str(SHIPPED / "dry_run.yaml"), overrides, results)
    console.print(method(home))
    # on a GPU, starting a second process takes longer than all the tickets
    jobs = jobs or (1 if gpu_name() else min(2, os.cpu_count() or 1))
    return _run(home, Local(jobs), quiet=False, verbose=verbose)


def train(
    experiment: ExperimentName,
    *words: Annotated[
        str, Parameter(help="Trainings, as lottery plan lists them, and fields to change", completer=trainings)
    ],
    seed: Annotated[int | None, Parameter(help="Only the dense run of this seed of the experiment")] = None,
    devices: Devices = 0,
    per_gpu: PerGpu = 1,
    restarts: Annotated[
        int | None, Parameter(help="Restarts without progress after which a task fails; default: no limit")
    ] = None,
    results: Results = RESULTS,
) -> int:
    """Train the dense runs of an experiment, or the trainings named; then show what each mask would keep.

    Example: lottery train experiments/cifar10_resnet20.yaml data.path=cifar-10-python.tar.gz
    """
    together = places(per_gpu, devices)
    overrides = tuple(word for word in words if "=" in word)
    mistakes = {f"--restarts {restarts}: expected 0 or more": restarts is not None and restarts < 0}
    described = checked_home(experiment, overrides, results, mistakes)
    named = [described.training(word) for word in words if "=" not in word]
    try:
        _refuse_unfit(described, devices)
    except Refused as error:
        if not (named and restarts is not None):
            raise
        # in an array element: recorded, else the sweep's last job would consider them lost
        return failed([record_failure(described, one.slug, str(error), refused=True) for one in named])
    if seed is not None and named:
        raise Refused(f"--seed {seed}: expected it or names of trainings ({named[0].slug}), not both")
    if seed is not None and seed not in described.experiment.seeds:
        raise Refused(f"--seed {seed}: expected one of the experiment's seeds {list(described.experiment.seeds)}")
    wanted = named or [one for one in described.graph if one.dense and seed in (None, one.origin)]
    if not named:  # in an array element, the training checks its data
        _check_data(described)
    home = open_home(experiment, overrides, results)
    if not named:
        console.print(method(home))
    if per_gpu > 1:
        crew = Local(together, per_gpu=per_gpu, only={one.slug for one in wanted}, restarts=restarts)
        try:
            return failed(crew.run(home))
        except Refused as error:  # no MPS here: recorded, else the sweep's last job would consider them lost
            return failed([record_failure(home, one.slug, str(error), refused=True) for one in wanted])
    worker, failures = Worker(home, devices, restarts=restarts), list[Failure]()
    for training in wanted:
        failure = worker.attempt_patiently(training.slug)
        failures += [failure] if failure else []
        if not failure and training.dense:
            summary(home, training)
        elif not failure:
            why = home.skipped(training)
            console.print(f"{training.slug} {f'skipped: {why}' if why else f'done: {home.folder(training)}'}")
    return failed(failures)


def sweep(
    experiment: ExperimentName,
    *overrides: Override,
    on: On = "local",
    jobs: Jobs | None = None,
    per_gpu: PerGpu = 1,
    devices: Devices = 0,
    wait: Annotated[bool, Parameter(help="With --on slurm: wait until all jobs have ended")] = False,
    dry_run: Annotated[bool, Parameter(help="With --on slurm: show the job scripts, submit nothing")] = False,
    take_over: Annotated[bool, Parameter(help="Train here although a cluster has jobs; cancel them first")] = False,
    quiet: Annotated[bool, Parameter(help="Print errors only")] = False,
    verbose: Verbose = False,
    results: Results = RESULTS,
) -> int:
    """Train everything that is missing: dense runs, tickets and controls; write the report. Run again to continue.

    Example: lottery sweep experiments/cifar10_resnet20.yaml data.path=cifar-10-python.tar.gz seeds=[0]
    """
    most, here = places(per_gpu, devices), f"--jobs {jobs}: expected"
    taken = f"--jobs, --per-gpu and --devices are for --on local; --on {on} takes them from the cluster"
    described = checked_home(experiment, overrides, results, {
        f"{here} 1 or more": jobs is not None and jobs < 1,
        taken: on != "local" and bool(jobs or devices or per_gpu != 1),
        f"{here} at most {most}, --per-gpu {per_gpu} on every GPU there is": per_gpu > 1 and (jobs or 0) > most,
        f"--wait and --dry-run are for --on slurm, not --on {on}": on != "slurm" and (wait or dry_run),
    })  # fmt: skip
    jobs = jobs or most
    if dry_run:
        scripts(described, arrays.preview(described))
        return 0
    if on == "slurm":
        preflight.refuse_what_cannot_work(described)
        _say_settings_stay(described)
    elif not take_over:
        arrays.refuse_live(described)

    def opened() -> Home:
        _refuse_unfit(described, devices)
        _check_data(described)
        home = open_home(experiment, overrides, results)
        if not quiet:
            console.print(method(home))
        return home

    if on == "local":
        return _run(opened(), Local(jobs, devices, quiet, per_gpu), quiet, verbose)
    if on == "mpi":
        with world() as ranks:
            return _run(opened(), Mpi(ranks, quiet), quiet, verbose) if ranks else 0
    home = opened()
    if former := earlier_plan(home):
        console.print(f"of an earlier plan of this experiment {len(former)} trainings still wait or run "
                      f"({', '.join(former[:3])}{', …' if len(former) > 3 else ''}); "
                      f"{command('cancel', home.root, '--earlier')} ends them")  # fmt: skip
    status = _run(home, Slurm(wait, quiet), quiet, verbose, report=wait)  # else the chain's last job writes it
    if not (wait or quiet):
        console.print(f"follow it: {command('status', home.root, '--watch')}")
    return status


def _run(home: Home, backend: Backend, quiet: bool, verbose: bool = False, report: bool = True) -> int:
    """Train what is missing, write the report, print failed and skipped trainings; return the exit status."""
    Runs(home.pool).refuse_replaced(*home.graph)
    failures = backend.run(home)
    try:
        if report:
            show.write_and_tell(home, verbose, quiet=quiet)
    finally:  # even if the report failed
        skipped = {one.slug: why for one in home.graph if report and (why := home.skipped(one))}
        status = failed(failures, skipped)
    return status


def _refuse_unfit(home: Home, devices: int) -> None:
    """Raise Refused if devices cannot share a batch or data are missing, before anything is written."""
    if devices:
        check_devices(home.experiment.recipe, devices)
    for section, data in home.experiment.datasets.items():
        refuse_absent(data, section)


def _say_settings_stay(home: Home) -> None:
    """Say that jobs in the queue keep their settings, if `cluster:` was changed since they were submitted."""
    on_record = home.root / "experiment.yaml"
    if not on_record.exists():
        return

    def asked(experiment: Experiment) -> Cluster:
        """Return the cluster's settings without those that a job reads when it starts."""
        return replace(experiment.cluster, container="", restarts=0, trainings_per_gpu=1, price_per_gpu_hour=0.0)

    changed = asked(experiment_file.load(on_record)) != asked(home.experiment)
    if changed and (live := live_jobs(home)):
        console.print(f"cluster: was changed; what the {len(live)} jobs in the queue asked SLURM for stays as it was "
                      f"({command('cancel', home.root)} and sweep again to change it)")  # fmt: skip


def _check_data(home: Home) -> None:
    """Raise Refused if the experiment does not fit its data, or was planned with others; print files not read."""
    if missing(home):
        fitting(home.experiment)
        for name, data in home.experiment.datasets.items():
            if SOURCES[data.name].listed and (now := listing(data)) != data.listing:
                again = command("sweep", home.root, f"{name}.path={data.path}")
                raise Refused(
                    f"{name}.path: {place_of(data)} has other images than {home.root} was planned with (listing {now}, "
                    f"before {data.listing}); put them back, or plan anew: {again}"
                )
    for data in home.experiment.datasets.values():
        if data.name == "folder" and (others := left_out(place_of(data))):
            named = ", ".join(map(str, others[:3])) + (", …" if len(others) > 3 else "")
            console.print(f"not read, {len(others)} files: {named} (expected jpg and png directly in class folders)")
