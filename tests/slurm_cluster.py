"""A real SLURM cluster on one machine: 20 nodes of 4 GPUs, with accounting, in a folder of its own.

munged, MariaDB, slurmdbd, slurmctld and 20 slurmd run as the present user. The GPUs are links to /dev/null, which is
enough for SLURM to hand them out and set CUDA_VISIBLE_DEVICES. Nothing outside the folder is touched, and everything
that was started is stopped by its process number.
"""

from __future__ import annotations

import getpass
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "sbatch", "sacct", "munged", "mariadbd", "mariadb-install-db")
PATH = f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"
NODES = [f"node{i:02d}" for i in range(1, 21)]


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if not shutil.which(name, path=PATH)]


class CannotStart(Exception):
    """SLURM cannot run on this machine; the text is one line, in the words of the daemon that did not start."""


def remove_shared_memory(since: float) -> None:
    """What worlds of MPI left behind since then: ours, and mapped by nobody any more."""
    mapped = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # gone in the meantime, or another user's
            mapped += maps.read_text()
    for path in Path("/dev/shm").glob("mpich_shm_*"):
        with suppress(OSError):
            found = path.stat()
            if found.st_uid == os.getuid() and found.st_mtime >= since and str(path) not in mapped:
                path.unlink()


class Cluster:
    """`with Cluster() as cluster`: up. SLURM's programs find it through SLURM_CONF."""

    def __init__(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="slm", dir="/tmp"))  # short: the names of sockets have a limit
        self.conf = self.base / "etc" / "slurm.conf"
        self.port = _free_ports()
        # MPI names its shared memory by the number of the job: that of an earlier cluster here must not come again
        self.settings = {"MaxArraySize": "1001", "FirstJobId": str(random.randrange(1, 5_000_000))}
        self.began = time.time()
        # daemons get little of the environment, and nothing of a SLURM job these tests may run in
        self.environment = {"PATH": PATH, "LC_ALL": "C", "HOME": str(Path.home()), "SLURM_CONF": str(self.conf)}

    def __enter__(self) -> Cluster:
        try:
            self._start()
        except (RuntimeError, TimeoutError) as error:
            why = self._last_words() or " ".join(str(error).split())
            self.stop()
            raise CannotStart(why) from None
        except BaseException:
            self.stop()
            raise
        return self

    def _last_words(self) -> str:
        """Return why a daemon did not start: the last errors in the log that was written last and has any."""
        logs = sorted((self.base / "log").glob("*.log"), key=lambda path: -path.stat().st_mtime)
        for path in logs:
            lines = path.read_text(errors="replace").splitlines()
            found = [line.rpartition("]")[2].strip() for line in lines if re.search("fatal:|error:|ERROR", line)]
            if found:
                return f"{path.stem}: {'; '.join(found[-3:])}"
        return ""

    def __exit__(self, *_: object) -> None:
        self.stop()

    # What a test does with it -------------------------------------------------------------------------------------

    def run(self, *command: object, check: bool = True) -> str:
        done = subprocess.run(
            [str(word) for word in command], env=self.environment, stdin=subprocess.DEVNULL, text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def queue(self) -> dict[str, str]:
        """State of every array element and job that waits or runs."""
        lines = self.run("squeue", "--noheader", "--array", "--format=%i %T").splitlines()
        return {line.split()[0]: line.split()[1] for line in lines}

    def described(self) -> str:
        """Return what a person would look at after a failure: all jobs, nodes out of service, errors in the logs."""
        logs = sorted((self.base / "log").glob("slurm*.log"))
        errors = [f"{path.stem}: {line}" for path in logs for line in path.read_text(errors="replace").splitlines()
                  if re.search("error:|Killing|drain|held", line)]  # fmt: skip
        jobs = self.run("squeue", "--array", "--states=all", "--format=%i %j %T %r %N", check=False)
        return "\n".join([jobs, self.run("sinfo", "-R", check=False), *errors[-40:]])

    def clear(self) -> None:
        """Cancel everything, and wait until it is gone."""

        def empty() -> bool:
            self.run("scancel", f"--user={getpass.getuser()}")  # again: a supervisor may just have submitted one
            return not self.queue()

        until(empty, 60)

    def set(self, **settings: str) -> None:
        """Change lines of slurm.conf; the controller starts anew with them."""
        self.settings |= settings
        self._write_conf()
        self.restart_controller()

    def restart_controller(self) -> None:
        self._stop("slurmctld", signal.SIGTERM)
        self.run("slurmctld", "-f", self.conf)
        until(lambda: "is UP" in self.run("scontrol", "ping", check=False), 30)
        for node in NODES:  # a changed configuration must be the same everywhere
            pid = self._pid(f"slurmd-{node}")
            if pid:
                os.kill(pid, signal.SIGHUP)

    def kill_node(self, node: str) -> None:
        """Power loss: slurmd, its step daemons and every task, all by SIGKILL; the controller is told at once."""
        log = str(self.base / "log" / f"slurmd-{node}.log")
        doomed = [self._pid(f"slurmd-{node}")]
        for process in Path("/proc").glob("[0-9]*"):
            try:
                environ = (process / "environ").read_bytes().split(b"\0")
                if (process / "comm").read_text().strip() == "slurmstepd":
                    on_node = log in [str(link.readlink()) for link in (process / "fd").iterdir()]
                else:
                    on_node = self._ours(environ) and f"SLURMD_NODENAME={node}".encode() in environ
            except OSError:  # gone in the meantime
                continue
            doomed += [int(process.name)] if on_node else []
        for pid in doomed:
            _kill(pid, signal.SIGKILL)
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    def restore_node(self, node: str) -> None:
        self.run("slurmd", "-N", node, "-f", self.conf)
        until(
            lambda: (
                self.run("sinfo", "-h", "-N", "-n", node, "-p", "gpu", "-o", "%T") in ("idle", "mixed", "allocated")
            ),
            60,
        )

    # Up and down --------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        for name in ("etc", "munge", "db", "log", "state", "pid", "dev"):
            (self.base / name).mkdir()
        self.base.chmod(0o755)
        (self.base / "munge").chmod(0o755)
        for node in NODES:
            (self.base / "spool" / node).mkdir(parents=True)
            (self.base / "tmp" / node).mkdir(parents=True)
        for i in range(4):
            (self.base / "dev" / f"nvidia{i}").symlink_to("/dev/null")
        self._write_conf()
        self._start_munge()
        self._start_accounting()
        self.run("slurmctld", "-c", "-f", self.conf)
        until(lambda: "is UP" in self.run("scontrol", "ping", check=False), 30)
        for node in NODES:
            self.run("slurmd", "-N", node, "-f", self.conf)
        until(lambda: len(self.run("sinfo", "-h", "-N", "-p", "gpu", "-t", "idle", "-o", "%N").split()) == 20, 60)
        until(
            lambda: f"lab|{self.port}" in self.run("sacctmgr", "-nP", "show", "cluster", "format=cluster,controlport")
        )
        self.run("sacctmgr", "-i", "add", "account", "lab", check=False)  # limits are enforced, so users need one
        self.run("sacctmgr", "-i", "add", "user", getpass.getuser(), "account=lab", check=False)
        until(lambda: "ok" in self.run("srun", "-N1", "--gres=gpu:1", "echo", "ok", check=False), 30)

    def _start_munge(self) -> None:
        munge = self.base / "munge"
        key = munge / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.run("munged", f"--key-file={key}", f"--socket={munge}/socket", f"--pid-file={self.base}/pid/munged.pid",
                 f"--log-file={self.base}/log/munged.log", f"--seed-file={munge}/seed")  # fmt: skip
        until(lambda: "MUNGE:" in self.run("munge", "-S", munge / "socket", "-n", check=False), 10)

    def _start_accounting(self) -> None:
        data, root = self.base / "db" / "data", ["--user=root"] if os.getuid() == 0 else []
        # one that starts sweeps its folder for temporary tables, also away under another that starts at that moment
        own = f"--tmpdir={self.base}/db"
        self.run("mariadb-install-db", "--no-defaults", f"--datadir={data}", own, *root,
                 "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")  # fmt: skip
        first = self.base / "db" / "init.sql"
        first.write_text(
            "CREATE DATABASE IF NOT EXISTS slurm_acct_db;\n"
            "CREATE USER IF NOT EXISTS 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';\n"
            "GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';\n"
        )
        with open(self.base / "log" / "mariadbd.out", "w") as out:
            subprocess.Popen(
                ["mariadbd", "--no-defaults", own, *root, f"--datadir={data}", f"--socket={self.base}/db/socket",
                 "--bind-address=127.0.0.1", f"--port={self.port + 2}", f"--pid-file={self.base}/pid/mariadbd.pid",
                 f"--log-error={self.base}/log/mariadbd.log", f"--init-file={first}", "--skip-name-resolve",
                 "--performance-schema=OFF", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M",
                 "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0"],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        login = ["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{self.port + 2}", "-uslurm", "-pslurm"]
        until(lambda: "1" in self.run(*login, "-Nse", "select 1 from dual", "slurm_acct_db", check=False), 60)
        self.run("slurmdbd")
        until(lambda: self.run("sacctmgr", "-n", "show", "stats", check=False), 60)

    def _write_conf(self) -> None:
        base, port, me = self.base, self.port, getpass.getuser()
        plugins = next(Path("/usr/lib").glob("*/slurm-wlm/select_cons_tres.so")).parent
        settings = {
            "ClusterName": "lab",
            "SlurmctldHost": "localhost(127.0.0.1)",
            "SlurmctldPort": port,
            "SlurmdPort": port + 100,
            "SlurmUser": me,
            "SlurmdUser": me,
            "AuthType": "auth/munge",
            "CredType": "cred/munge",
            "AuthInfo": f"socket={base}/munge/socket,cred_expire=5",  # a requeued job waits cred_expire + 1 s
            "PluginDir": plugins,
            "StateSaveLocation": f"{base}/state",
            "SlurmdSpoolDir": f"{base}/spool/%n",
            "TmpFS": f"{base}/tmp/%n",
            "SlurmctldPidFile": f"{base}/pid/slurmctld.pid",
            "SlurmdPidFile": f"{base}/pid/slurmd-%n.pid",
            "SlurmctldLogFile": f"{base}/log/slurmctld.log",
            "SlurmdLogFile": f"{base}/log/slurmd-%n.log",
            "MailProg": "/bin/true",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SwitchType": "switch/none",
            "MpiDefault": "none",
            "SlurmdParameters": "config_overrides",
            "SlurmctldParameters": "preempt_send_user_signal",
            "ReturnToService": 2,
            "SlurmctldTimeout": 10,
            "SlurmdTimeout": 300,  # a busy machine is not a lost node
            "MessageTimeout": 30,
            "MinJobAge": 300,
            "KillWait": 3,
            "OverTimeLimit": 10,  # a job that was warned saves itself, however slow the machine is
            "CompleteWait": 0,
            "SchedulerParameters": "sched_interval=1,bf_interval=1,batch_sched_delay=0,default_queue_depth=1000",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "PreemptType": "preempt/partition_prio",
            "PreemptMode": "REQUEUE",
            "EnforcePartLimits": "ALL",
            "GresTypes": "gpu",
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": port + 1,
            "AccountingStoragePass": f"{base}/munge/socket",
            "AccountingStorageEnforce": "limits",
            "AccountingStorageTRES": "gres/gpu",
            "JobAcctGatherType": "jobacct_gather/linux",
        } | self.settings
        nodes = f"node[{NODES[0][-2:]}-{NODES[-1][-2:]}]"
        lines = [
            *(f"{name}={value}" for name, value in settings.items()),
            f"NodeName={nodes} NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{port + 101}-{port + 120}] CPUs=4 "
            "CoresPerSocket=4 RealMemory=8000 Gres=gpu:4 State=UNKNOWN",
            f"PartitionName=gpu Nodes={nodes} Default=YES MaxTime=600 DefaultTime=30 PriorityTier=10 PreemptMode=OFF",
            f"PartitionName=low Nodes={nodes} MaxTime=600 DefaultTime=30 PriorityTier=1 PreemptMode=REQUEUE",
            f"PartitionName=grace Nodes={nodes} MaxTime=600 DefaultTime=30 PriorityTier=1 GraceTime=15",
        ]
        self.conf.write_text("\n".join(lines) + "\n")
        (base / "etc" / "gres.conf").write_text(
            f"AutoDetect=off\nNodeName={nodes} Name=gpu File={base}/dev/nvidia[0-3]\n"
        )
        accounting = base / "etc" / "slurmdbd.conf"
        accounting.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={base}/munge/socket\nPluginDir={plugins}\nDbdHost=localhost\n"
            f"DbdAddr=127.0.0.1\nDbdPort={port + 1}\nSlurmUser={me}\nLogFile={base}/log/slurmdbd.log\n"
            f"PidFile={base}/pid/slurmdbd.pid\nStorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n"
            f"StoragePort={port + 2}\nStorageUser=slurm\nStoragePass=slurm\nStorageLoc=slurm_acct_db\n"
        )
        accounting.chmod(0o600)

    def stop(self) -> None:
        """The controller first, so that nothing is requeued any more; then nodes, tasks, and the rest."""
        self._stop("slurmctld", signal.SIGKILL)
        for node in NODES:
            self._stop(f"slurmd-{node}", signal.SIGKILL)
        for process in Path("/proc").glob("[0-9]*"):
            try:
                environ = (process / "environ").read_bytes().split(b"\0")
                stepd = (process / "comm").read_text().strip() == "slurmstepd"
            except OSError:
                continue
            if self._ours(environ) and (stepd or any(entry.startswith(b"SLURM_JOB_ID=") for entry in environ)):
                _kill(int(process.name), signal.SIGKILL)
        for name in ("slurmdbd", "mariadbd", "munged"):
            self._stop(name, signal.SIGTERM)
        remove_shared_memory(self.began)
        shutil.rmtree(self.base, ignore_errors=True)

    def _ours(self, environ: list[bytes]) -> bool:
        return f"SLURM_CONF={self.conf}".encode() in environ

    def _pid(self, name: str) -> int:
        """Of a daemon that lives; 0 where its number belongs to something else by now."""
        path = self.base / "pid" / f"{name}.pid"
        try:
            pid = int(path.read_text())
            comm = Path(f"/proc/{pid}/comm").read_text().strip()
        except (OSError, ValueError):
            return 0
        return pid if comm == name.partition("-")[0] and _alive(pid) else 0

    def _stop(self, name: str, how: signal.Signals) -> None:
        pid = self._pid(name)  # first: a daemon removes its file before it has ended
        if not pid:
            return
        _kill(pid, how)
        deadline = time.monotonic() + 20
        while _alive(pid):
            if time.monotonic() > deadline:
                _kill(pid, signal.SIGKILL)
            time.sleep(0.05)


PATIENCE = 4.0  # of a busy machine


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition, never for a time: `seconds` is what an idle machine would need at most."""
    began = time.monotonic()
    deadline = began + PATIENCE * seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {condition.__code__.co_names}")
        time.sleep(max(0.1, 2 * (time.monotonic() - began)))  # asking leaves the cores to those who are waited for
        began = time.monotonic()


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def _kill(pid: int, how: signal.Signals) -> None:
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, how)


def _free_ports(span: int = 130) -> int:
    """The first of a block of free ports, below those the kernel gives out; test processes side by side look apart."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for base in range(17100 + 600 * (worker % 24), 32000, 200):
        sockets = []
        try:
            for port in (*range(base, base + 3), *range(base + 100, base + span)):
                sockets.append(socket.socket())
                sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sockets[-1].bind(("127.0.0.1", port))
            return base
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise RuntimeError("no block of free ports")
