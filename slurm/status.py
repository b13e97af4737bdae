"""Where every task of a sweep stands: from its files, and from SLURM where it was submitted there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slurm import jobs, queue, sbatch
from slurm.queue import Seen
from sweep.errors import Refused
from sweep.graph.home import Home
from sweep.graph.state import State, predicted_seconds
from sweep.graph.state import states as states_of_files


@dataclass(frozen=True)
class Standing:
    tasks: list[State]
    nodes: int = 0  # that work for the sweep now
    silence: str = ""  # why SLURM's side is missing


def states(home: Home) -> Standing:
    """Files decide what is done or failed. Of the rest SLURM is asked what lives; what it does not know is lost.

    SLURM first and files second: a task that ends in between is then seen to be done.
    """
    numbers = jobs.elements(home)
    if not numbers:
        return Standing(states_of_files(home))
    single = set(sbatch.SINGLE)
    open_ = {task for task in numbers if task in single or not home.done(home.training(task))}
    try:
        seen = queue.ask(number for task in open_ for number in numbers[task])
    except (queue.Silent, Refused) as error:
        silence = f"SLURM does not answer, this is from the files alone ({error})"
        return Standing(states_of_files(home), silence=silence)
    tasks = states_of_files(home)
    failed = {one.task: one for one in tasks if one.state == "failed"}
    rest = any(seen[number].live for number in numbers.get("rest", ()) if number in seen)
    tasks = [_merged(home, one, numbers.get(one.task, ()), seen, failed, rest) for one in tasks]
    running = {found.node for found in seen.values() if found.state == "RUNNING" and found.node}
    return Standing(tasks, len(running))


def _merged(
    home: Home, one: State, numbers: tuple[str, ...], seen: dict[str, Seen], failed: dict[str, State], rest: bool
) -> State:
    if one.state == "done":
        return one
    found = [seen[number] for number in numbers if number in seen]
    live = [each for each in found if each.live]
    if live:
        latest = live[-1]
        if latest.state == "RUNNING":
            return replace(one, state="running", note=f"on {latest.node}")
        return replace(one, state="waiting", note=f"in the queue ({latest.reason})")
    if one.state in ("failed", "running"):  # it said why itself; or it runs here, outside of SLURM
        return one
    if not numbers and rest:
        return replace(one, note="to be submitted when there is room in the queue")
    why = f"SLURM: {found[-1].state}" if found else "cancelled" if numbers else "never submitted"
    need = next((failed[need.slug] for need in home.training(one.task).needs if need.slug in failed), None)
    if need:
        why = f"never began: {need.task} failed ({need.note})"
    elif found and (line := _last_line(home, one.task)):
        why += f"; last line: {line}"
    return replace(one, state="lost", note=why)


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
