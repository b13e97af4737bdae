"""The state of every task of a sweep, from its files and, if it was submitted, from SLURM."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from slurm import jobs, queue, sbatch
from slurm.queue import Entry
from sweep.errors import Refused
from sweep.graph.home import Home
from sweep.graph.runs import Runs
from sweep.graph.state import Cost, State, cost_of, predicted_seconds, states


@dataclass(frozen=True)
class Standing:
    tasks: list[State]
    jobs: tuple[State, ...] = ()  # jobs of the chain without training: masks, report
    nodes: int = 0  # number of nodes that run the sweep now
    silence: str = ""  # why SLURM's answer is missing


def standing_of(home: Home) -> Standing:
    """Return the states of all tasks: files decide what is done or failed, SLURM what is live; the rest is lost.

    SLURM is asked first and files are read second, so that a task that ends in between is seen as done.
    """
    lacking, submitted = home.missing_points(), bool(jobs.elements(home))
    if not submitted and not (home.root / "slurm").is_dir():  # never submitted, and no scripts written
        return Standing(states(home, lacking))
    try:
        known = jobs.known(home, queue.listing())
    except (queue.Silent, Refused) as error:
        silence = f"SLURM does not answer, this is from the files alone ({error})" if submitted else ""
        return Standing(states(home, lacking), silence=silence)
    if not submitted and not known:
        return Standing(states(home, lacking))
    carried = Counter(one.job for its in known.values() for one in its)
    chain = {part: _job(part, known[part][-1]) for part in sbatch.SINGLE if part in known}
    rest = "rest" in chain and chain["rest"].state in ("waiting", "running")
    ended = {"masks": chain["masks"]} if "masks" in chain and chain["masks"].state == "lost" else {}
    tasks = []
    for one in states(home, lacking):  # in the order of the plan: parents before children
        tasks.append(_merged(home, one, known.get(one.task, []), ended, rest, carried))
        if tasks[-1].state in ("failed", "lost"):
            ended[one.task] = tasks[-1]
    nodes = {one.node for its in known.values() for one in its if one.state == "RUNNING" and one.node}
    return Standing(tasks, tuple(chain.values()), len(nodes))


def _merged(
    home: Home, one: State, its: list[Entry], ended: dict[str, State], rest: bool, carried: Counter[str]
) -> State:
    """Return the state of a training from its files and its jobs.

    `ended`: earlier tasks that did not succeed; `carried`: number of trainings per array element.
    """
    if one.state == "done":
        return one
    if live := [each for each in its if each.live]:
        found = _live(one, live[-1])
        if found.state == "running" and carried[live[-1].job] > 1 and one.state == "waiting":  # others run first
            return replace(one, note=f"waits for its turn in a job {found.note}")
        return found
    if one.state in ("failed", "running", "skipped"):  # it recorded why, or it runs outside of SLURM
        return one
    if not its and rest:
        return replace(one, note="to be submitted when there is room in the queue")
    last = next((each.state for each in reversed(its) if each.state), "")
    why = f"SLURM: {last}" if last else "cancelled" if its else "never submitted"
    training = home.training(one.task)
    needs = [*(need.slug for need in training.needs), *(["masks"] if training.generation else [])]
    before = next((ended[need] for need in needs if need in ended), None)
    if before and one.state == "waiting":
        why = f"never began: {before.task} {before.state} ({before.note})"
    elif last and (line := _last_line(home, one.task)):
        why += f"; last line: {line}"
    return replace(one, state="lost", note=why, seconds_left=None)


def _live(one: State, job: Entry) -> State:
    """Return a state updated by its live job: waiting or running."""
    if job.state == "RUNNING":
        return replace(one, state="running", note=f"on {job.node}")
    return replace(one, state="waiting", note=f"in the queue ({job.reason})")


def _job(part: str, last: Entry) -> State:
    """Return the state of masks, report or rest from its latest job."""
    if last.live:
        return _live(State(part, "waiting", 0), last)
    if not last.state:
        return State(part, "unknown", 0, f"SLURM has forgotten job {last.job}")
    return State(part, "done" if last.state == "COMPLETED" else "lost", 0, f"job {last.job}: {last.state}")


def _last_line(home: Home, task: str) -> str:
    path = jobs.log_of(home, task)
    lines = path.read_text(errors="replace").split("\n") if path.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")[:200]


def seconds_left(home: Home, tasks: list[State]) -> float | None:
    """Return the predicted time of the remaining trainings on the experiment's cluster; None if it is not known yet."""
    cluster = home.experiment.cluster
    predicted = predicted_seconds(home, cluster.gpus_per_cell)
    if predicted is None:
        return None
    left = [
        one.seconds_left if one.seconds_left is not None else predicted[one.task]
        for one in tasks
        if one.task in predicted and one.state in ("waiting", "running")
    ]
    return max(sum(left) / sbatch.together(cluster), *left) if left else None


@dataclass(frozen=True)
class Status:
    """What `lottery status` prints: the state of every task, and time and cost of the whole sweep."""

    folder: str
    epochs: int  # epochs of the schedule
    standing: Standing
    replaced: int  # number of finished trainings that came from a run since replaced
    seconds_left: float | None  # None if it is not known yet
    cost: Cost


def make_status(home: Home) -> Status:
    """Return the status of a sweep, from its files and, if it was submitted, from SLURM."""
    standing, runs = standing_of(home), Runs(home.pool)
    replaced = sum(bool(runs.replaced(home.training(one.task))) for one in standing.tasks if one.state == "done")
    left = seconds_left(home, standing.tasks)
    return Status(str(home.root), home.experiment.recipe.epochs, standing, replaced, left, cost_of(home))
