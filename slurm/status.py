"""Where every task of a sweep stands: from its files, and from SLURM where it was submitted there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from slurm import jobs, queue, sbatch
from slurm.queue import Seen
from sweep.errors import Refused
from sweep.graph.home import Home
from sweep.graph.runs import Runs
from sweep.graph.state import Cost, State, cost_of, missing, predicted_seconds
from sweep.graph.state import states as states_of_files


@dataclass(frozen=True)
class Standing:
    tasks: list[State]
    jobs: tuple[State, ...] = ()  # of the chain that train nothing: masks, report
    nodes: int = 0  # that work for the sweep now
    silence: str = ""  # why SLURM's side is missing


def states(home: Home) -> Standing:
    """Files decide what is done or failed. Of the rest SLURM is asked what lives; what it does not know is lost.

    SLURM first and files second: a task that ends in between is then seen to be done.
    """
    lacking, submitted = home.missing_points(), bool(jobs.elements(home))
    if not submitted and not (home.root / "slurm").is_dir():  # never submitted, and no script to submit by hand
        return Standing(states_of_files(home, lacking))
    try:
        listed = queue.listing()
        numbers = jobs.elements(home, listed)
        single, wanted = set(sbatch.SINGLE), {training.slug for training in missing(home)}
        open_ = {task for task in numbers if task in single or task in wanted}
        seen = queue.ask((number for task in open_ for number in numbers[task]), listed)
    except (queue.Silent, Refused) as error:
        silence = f"SLURM does not answer, this is from the files alone ({error})" if submitted else ""
        return Standing(states_of_files(home, lacking), silence=silence)
    if not numbers:
        return Standing(states_of_files(home, lacking))
    carried = Counter(number for its in numbers.values() for number in its)
    chain = {part: _job(part, numbers[part], seen) for part in sbatch.SINGLE if part in numbers}
    rest = "rest" in chain and chain["rest"].state in ("waiting", "running")
    ended = {"masks": chain["masks"]} if "masks" in chain and chain["masks"].state == "lost" else {}
    tasks = []
    for one in states_of_files(home, lacking):  # in the order of the plan: parents come first
        tasks.append(_merged(home, one, numbers.get(one.task, ()), seen, ended, rest, carried))
        if tasks[-1].state in ("failed", "lost"):
            ended[one.task] = tasks[-1]
    running = {found.node for found in seen.values() if found.state == "RUNNING" and found.node}
    return Standing(tasks, tuple(chain.values()), len(running))


def _merged(
    home: Home, one: State, numbers: tuple[str, ...], seen: dict[str, Seen], ended: dict[str, State], rest: bool,
    carried: Counter[str],
) -> State:  # fmt: skip
    """Return the state of a training from its files and from SLURM. `ended`: what came before it and did not succeed;
    `carried`: how many trainings an array element has."""
    if one.state == "done":
        return one
    found = [seen[number] for number in numbers if number in seen]
    if live := _live(one, found):
        packed = carried[next(each.job for each in reversed(found) if each.live)] > 1
        if live.state == "running" and packed and one.state == "waiting":  # its element runs, and has others first
            return replace(one, note=f"waits for its turn in a job {live.note}")
        return live
    if one.state in ("failed", "running", "skipped"):  # it said why itself; or it runs here, outside of SLURM
        return one
    if not numbers and rest:
        return replace(one, note="to be submitted when there is room in the queue")
    why = f"SLURM: {found[-1].state}" if found else "cancelled" if numbers else "never submitted"
    training = home.training(one.task)
    needs = [*(need.slug for need in training.needs), *(["masks"] if training.generation else [])]
    before = next((ended[need] for need in needs if need in ended), None)
    if before and one.state == "waiting":
        why = f"never began: {before.task} {before.state} ({before.note})"
    elif found and (line := _last_line(home, one.task)):
        why += f"; last line: {line}"
    return replace(one, state="lost", note=why, seconds_left=None)


def _live(one: State, found: list[Seen]) -> State | None:
    """As SLURM has it, where it waits or runs."""
    live = [each for each in found if each.live]
    if not live:
        return None
    if live[-1].state == "RUNNING":
        return replace(one, state="running", note=f"on {live[-1].node}")
    return replace(one, state="waiting", note=f"in the queue ({live[-1].reason})")


def _job(part: str, numbers: tuple[str, ...], seen: dict[str, Seen]) -> State:
    """Masks or report, by its latest job."""
    one = State(part, "unknown", 0, f"SLURM has forgotten job {numbers[-1]}")
    found = [seen[numbers[-1]]] if numbers[-1] in seen else []
    if live := _live(one, found):
        return live
    if found:
        done = found[0].state == "COMPLETED"
        return replace(one, state="done" if done else "lost", note=f"job {numbers[-1]}: {found[0].state}")
    return one


def _last_line(home: Home, task: str) -> str:
    path = jobs.log_of(home, task)
    lines = path.read_text(errors="replace").split("\n") if path.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")[:200]


def seconds_left(home: Home, tasks: list[State]) -> float | None:
    """Of the cells that are not done, on the cluster as the experiment describes it; None before it can be known."""
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
    """What `lottery status` prints: where everything stands, and what the sweep as a whole has taken and will take."""

    folder: str
    epochs: int  # of the schedule
    standing: Standing
    replaced: int  # finished trainings that came from a run since replaced
    seconds_left: float | None  # None before it can be known
    cost: Cost


def make_status(home: Home) -> Status:
    """Return where a sweep stands, from its files and, where it was submitted, from SLURM."""
    standing, runs = states(home), Runs(home.pool)
    replaced = sum(bool(runs.replaced(home.training(one.task))) for one in standing.tasks if one.state == "done")
    left = seconds_left(home, standing.tasks)
    return Status(str(home.root), home.experiment.recipe.epochs, standing, replaced, left, cost_of(home))
