"""The command `lottery`.

Exit status: 0 = done, 1 = some training failed or was skipped, 2 = invalid input, 130 = stopped and resumable, 141 =
the reader of its output has closed the pipe.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

# TensorFlow always imports Keras: 1.4 of its 4.4 s. With this setting it looks for the old Keras, does not find it and
# continues without. Only in processes of this command: a notebook may need tf.keras.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

from cyclopts import App, CycloptsError, Group, MissingArgumentError

from lottery.cli import bench, check, cluster, compare, data, export, masks, plan, run, show, tidy, tune, wandb, weights
from slurm.queue import Silent
from sweep.errors import Interrupted, Refused
from sweep.hardware import version_of

app = App(
    name="lottery",
    help="Lottery-ticket sweeps: which sparse subnetworks, rewound to which epoch, train as well as the whole network.",
    version=lambda: version_of("lottery-sweep"),
    help_format="plaintext",
    group_commands=Group("Options", sort_key=9),
)
COMMANDS: dict[str, dict[str, Any]] = {
    "A sweep from beginning to end": {
        "dry-run": run.dry_run, "plan": plan.plan, "check": check.check, "sweep": run.sweep, "status": show.status,
        "report": show.report, "record": tidy.record, "train": run.train, "masks": masks.masks,
        "weights": weights.weights,
    },
    "On SLURM": {
        "logs": cluster.logs, "retry": cluster.retry, "cancel": cluster.cancel_, "sbatch": cluster.sbatch_,
    },
    "Take a ticket out": {
        "best": export.best, "evaluate": export.evaluate, "export": export.export, "compare": compare.compare_,
    },
    "Other commands": {
        "data": data.app, "tune": tune.tune, "wandb": wandb.app, "tidy": tidy.tidy, "bench": bench.app,
        "profile": bench.profile, "schema": check.schema,
    },
}  # fmt: skip
bench.app.command(export.inference)
for number, (title, commands) in enumerate(COMMANDS.items()):
    group = Group(title, sort_key=number)
    for place, (name, command) in enumerate(commands.items()):
        if isinstance(command, App):
            command.group, command.sort_key = (group,), place
            app.command(command)
        else:
            app.command(command, name=name, group=group, sort_key=place)
app.command(cluster.rescue_, name="rescue", show=False)  # called by jobs
app.command(cluster.supervise_, name="supervise", show=False)
app.register_install_completion_command()


def main() -> int:
    # a running training handles signals itself; otherwise a closed terminal or a kill ends the command as Ctrl-C does
    for number in (signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_DFL:  # ignored under nohup
            signal.signal(number, signal.default_int_handler)
    try:
        status = app(sys.argv[1:], result_action="return_value", exit_on_error=False, print_error=False) or 0
        sys.stdout.flush()
        return status
    except MissingArgumentError as error:
        if error.argument is None or error.keyword or not error.argument.field_info.is_positional:
            return _end(_line(error), 2)
        command, word = " ".join(error.command_chain or ()), error.argument.name.lstrip("-").upper()
        return _end(f"{command}: {word} is missing (lottery {command} --help says what it is)", 2)
    except CycloptsError as error:
        return _end(_line(error), 2)
    except Refused as error:
        return _end(str(error), 2)
    except Silent as error:
        return _end(f"SLURM does not answer: {error}", 2)
    except BrokenPipeError:  # `lottery … | head`: the reader is done
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python reports it again at exit
        return 141
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _end(f"{where}{error.strerror or error or type(error).__name__}", 2)
    except MemoryError:
        return _end("out of memory; expected a smaller network, image or list", 2)
    except Interrupted as error:
        return _end(str(error), 130)
    except KeyboardInterrupt:
        return _end("stopped; run again to continue", 130)


def _line(error: CycloptsError) -> str:
    return f"{' '.join(str(error).split())} (lottery --help lists the commands)"


def _end(message: str, status: int) -> int:
    for line in message.splitlines():  # a file may have several mistakes
        print(f"lottery: {line}", file=sys.stderr)
    return status
