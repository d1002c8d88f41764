"""A real SLURM on hosts of this machine: slurmctld on one, slurmd on the others, and two users who are not root."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster.hosts import Hosts
from cluster.hosts import missing as hosts_missing
from filelock import FileLock
from helpers.places import PATIENCE_SECONDS, ROOT

CONTROLLER, NODES = 1, (2, 3, 4)
USERS = {"student": 1500, "colleague": 1501}
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "useradd", "su")
TRAVELS = ("analysis", "search_spaces", "study", "trainables", "slurm", "pyproject.toml", "constraints.txt")
FOLDERS = "/run/munge /var/log/munge /var/lib/munge /etc/slurm /var/lib/slurm"
# Without cgroups, which hosts do not have. A lost node is noticed, and a requeued job begins, sooner than by default.
CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={controller}
AuthType=auth/munge
AuthInfo=cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/var/lib/slurm/controller
SlurmdSpoolDir=/var/lib/slurm/node
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=30
MinJobAge=7200
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Why there can be no SLURM on hosts of this machine; None where there can."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    if absent := [name for name in PROGRAMS if not shutil.which(name, path=path)]:
        return f"SLURM needs {', '.join(absent)} (Debian: slurm-wlm, munge)"
    return hosts_missing()


@dataclass(frozen=True)
class SlurmOnHosts:
    """A controller, where users log in, and nodes of two CPUs. Every user has the project in a home that all see."""

    hosts: Hosts

    def start(self) -> None:
        """Makes hosts, users and projects, and waits until SLURM has all nodes."""
        self.hosts.up(1 + CONTROLLER + len(NODES))
        self.hosts.shared.chmod(0o755)
        key = os.urandom(1024)
        for host in (CONTROLLER, *NODES):
            disk = self.hosts.disk(host)
            (disk / "root").chmod(0o711)  # Python may lie below it
            (disk / "etc" / "munge" / "munge.key").write_bytes(key)
            (disk / "etc" / "slurm").mkdir(exist_ok=True)
            (disk / "etc" / "slurm" / "slurm.conf").write_text(self._configuration())
            (disk / "etc" / "slurm" / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
            for user, number in USERS.items():
                self.hosts.run(host, f"useradd --uid {number} --no-create-home --home-dir /shared/{user} {user}")
            self.boot(host)
        for user, number in USERS.items():
            self._give_project(user, number)
        self.wait(lambda: self.nodes() == f"{len(NODES)}:idle\n", self.nodes)

    def boot(self, host: int) -> None:
        """Starts what a host does for SLURM, after it was switched on."""
        daemon = "slurmctld" if host == CONTROLLER else "slurmd"
        quiet = "</dev/null >/dev/null 2>&1"
        owned = f"mkdir -p {FOLDERS} && chown root: /etc/munge /etc/munge/munge.key {FOLDERS}"
        safe = "chmod 600 /etc/munge/munge.key && chmod 700 /var/log/munge /var/lib/munge && rm -f /run/munge/*"
        self.hosts.run(host, f"{owned} && {safe} && munged {quiet} && {daemon} {quiet}")

    def user(self, line: str, *, name: str = "student", host: int = CONTROLLER, check: bool = True) -> str:
        """What a line of bash prints for a user, in the user's checkout."""
        home = f"cd /shared/{name}/glue-exit-study && export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1"
        command = f"su {name} <<'END'\n{home} && {line}\nEND"
        return self.hosts.run(host, command, check=check, timeout=PATIENCE_SECONDS).stdout

    def submit(self, arguments: str, *, options: str = "", name: str = "student") -> int:
        """The number of a job of `slurm/study.sbatch`, with one CPU on each node."""
        answer = self.user(f"sbatch --cpus-per-task=1 {options} slurm/study.sbatch {arguments}", name=name)
        return int(answer.split()[-1])

    def job(self, number: int) -> dict[str, str]:
        """What SLURM says of a job, by its names."""
        words = self.hosts.run(CONTROLLER, f"scontrol --oneliner show job {number}").stdout.split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def cpus_of_steps(self, number: int) -> list[int]:
        """How many CPUs each `srun` of a job has."""
        steps = self.hosts.run(CONTROLLER, f"scontrol --oneliner show step {number}").stdout.splitlines()
        words = [dict(word.split("=", 1) for word in step.split() if "=" in word) for step in steps]
        return [int(step["CPUs"]) for step in words if step["StepId"].split(".")[1].isdigit()]

    def nodes(self) -> str:
        """How many nodes there are in each state: `3:idle`."""
        return self.hosts.run(CONTROLLER, "sinfo -h -o %D:%T").stdout

    def wait_for_end(self, number: int) -> dict[str, str]:
        """What SLURM says of a job once it has ended."""
        going_on = ("PENDING", "RUNNING", "COMPLETING")
        self.wait(lambda: self.job(number)["JobState"] not in going_on, lambda: self.job(number))
        return self.job(number)

    def host_of(self, name: str) -> int:
        """The number of a host by its name."""
        return next(host for host in (CONTROLLER, *NODES) if self.hosts.name(host) == name)

    def left(self) -> list[str]:
        """Processes of users on nodes that are on, and their folders there."""
        who = ",".join(map(str, USERS.values()))
        there = f"ps -u {who} -o args=; ls -d /tmp/study-?????? 2>/dev/null"
        nodes = [host for host in NODES if self.hosts.is_on(host)]
        return [line for host in nodes for line in self.hosts.run(host, there, check=False).stdout.splitlines()]

    @staticmethod
    def wait(condition: Callable[[], object], instead: Callable[[], object], *, every: float = 1.0) -> None:
        """Until the condition holds; if it never does, says what there is `instead`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain: {instead()}"
            time.sleep(every)

    def _configuration(self) -> str:
        nodes = "\n".join(f"NodeName={self.hosts.name(host)} CPUs=2 RealMemory=1000" for host in NODES)
        return CONFIGURATION.format(controller=self.hosts.name(CONTROLLER), nodes=nodes)

    def _give_project(self, user: str, number: int) -> None:
        project = self.hosts.shared / user / "glue-exit-study"
        project.mkdir(parents=True)
        for name in TRAVELS:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, project / name)
        (project / ".venv").symlink_to(self.hosts.venv)
        for path in (project.parent, *project.parent.rglob("*")):
            os.chown(path, number, number, follow_symlinks=False)


@contextmanager
def slurm_on_hosts() -> Iterator[SlurmOnHosts]:
    """SLURM on hosts of its own, for as long as it is needed.

    Raises:
        filelock.Timeout: another run has these hosts.
    """
    extra = ROOT / "build" / "cluster"  # with it Ray starts more, some of it on ports that are fixed
    layers = tuple(path for path in (extra, (ROOT / ".venv").resolve()) if path.exists())
    hosts = Hosts(
        prefix="slurm",
        subnet="10.88.9",
        state=Path("/var/tmp/slurm-hosts"),
        layers=layers,
        venv="/opt/environment",
        seen=(Path(sys.base_prefix),),
    )
    with FileLock(f"{hosts.state}.lock", timeout=0):
        hosts.down()  # what a run that was killed has left
        try:
            slurm = SlurmOnHosts(hosts)
            slurm.start()
            yield slurm
        finally:
            hosts.down()
