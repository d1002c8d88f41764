"""Hosts on this machine, to try a cluster without one: each with a network, processes, sshd and a disk of its own.

    PYTHONPATH=tests python -m cluster.hosts up 3           # hosts 0, 1, 2; 0 is where the operator sits
    PYTHONPATH=tests python -m cluster.hosts exec 1 'ss -ltn'
    PYTHONPATH=tests python -m cluster.hosts off 1          # a power cut: nothing says goodbye; `on 1` boots it again
    PYTHONPATH=tests python -m cluster.hosts down

They see each other at SUBNET.100 and upwards, and nothing else. /root, /tmp, /etc and /var lie on a host's disk, which
survives a power cut; /run, /dev/shm and processes do not. /usr is this machine's, read-only; /shared is one folder for
all but host 0. Two sets of hosts are on one machine at a time where their prefixes differ.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("/usr/sbin/sshd", "ssh", "ssh-keygen", "rsync", "ip", "ss", "unshare", "nsenter", "setsid", "pivot_root")
ENVIRONMENT = {
    "HOME": "/root",
    "USER": "root",
    "SHELL": "/bin/bash",
    "TERM": "xterm",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
}
BOOT_SECONDS = 60.0
OPERATOR = 0
# What a host needs, tried in namespaces that end with it.
TRIAL = """
mount -t tmpfs tmpfs /mnt && mkdir /mnt/lower /mnt/upper /mnt/work /mnt/merged
mount -t overlay overlay -o lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work /mnt/merged
ip link add bridge0 type bridge && ip link add eth0 type veth peer name eth1
"""


def missing() -> str | None:
    """Why no hosts can be made on this machine; None where they can."""
    if os.geteuid() != 0:
        return "hosts are made by root alone"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    if absent := [name for name in PROGRAMS if not shutil.which(name, path=path)]:
        return f"hosts need {', '.join(absent)} (Debian: openssh-server, openssh-client, rsync, iproute2, util-linux)"
    trial = ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "sh", "-ec", TRIAL]
    answer = subprocess.run(trial, capture_output=True, text=True)
    return f"hosts need namespaces, overlayfs and bridges: {answer.stderr.strip()}" if answer.returncode else None


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """A set of hosts: their names and addresses, where their disks lie, and what they see of this machine.

    `layers` are virtual environments, the uppermost first, which every host finds as one and can change for itself,
    at `venv` and at their own places (scripts name those). `seen` are folders that hosts see, read-only.
    """

    prefix: str = "study"
    subnet: str = "10.88.7"
    state: Path = Path("/var/tmp/study-hosts")
    layers: tuple[Path, ...] = ()
    venv: str = "/root/glue-exit-study/.venv"
    seen: tuple[Path, ...] = ()

    @property
    def shared(self) -> Path:
        """The folder that hosts see as /shared."""
        return self.state / "shared"

    def address(self, host: int) -> str:
        """Where the others find it."""
        return f"{self.subnet}.{100 + host}"

    def name(self, host: int) -> str:
        """What it calls itself, and others may call it."""
        return f"{self.prefix}{host}"

    def disk(self, host: int) -> Path:
        """Its folders root, tmp, etc and var."""
        return self.state / str(host)

    def up(self, count: int) -> None:
        """Makes so many hosts, and switches on those that are off."""
        self.shared.mkdir(parents=True, exist_ok=True)
        if not self._key.exists():
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._key))
        if not Path("/run/netns", self._switch).exists():
            _run("ip", "netns", "add", self._switch)
            _run("ip", "-n", self._switch, "link", "add", "br0", "type", "bridge")
            _run("ip", "-n", self._switch, "link", "set", "br0", "up")
        for host in range(count):
            self.on(host)

    def on(self, host: int) -> None:
        """Boots a host, with the disk of the last time if there was one; returns when its sshd answers."""
        if self.is_on(host):
            return
        disk = self.disk(host)
        self._make_disk(host)
        self._plug_in(host)
        shared = "" if host == OPERATOR else str(self.shared)
        environment = ENVIRONMENT | {
            "NAME": self.name(host),
            "DISK": str(disk),
            "SHARED": shared,
            "SEEN": " ".join(map(str, self.seen)),
            "LAYERS": ":".join(map(str, self.layers)),
            "VENVS": " ".join([self.venv, *map(str, self.layers)]),
        }
        namespaces = ["ip", "netns", "exec", self.name(host), "unshare", "--mount", "--pid", "--uts", "--ipc", "--fork"]
        boot = str(Path(__file__).with_name("boot_host.sh"))
        with (disk / "console.log").open("a") as console:
            subprocess.run(
                ["setsid", "--fork", *namespaces, boot],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                check=True,
            )
        deadline = time.monotonic() + BOOT_SECONDS
        while not self._answers(host):
            if time.monotonic() > deadline:
                raise RuntimeError(f"host {host} does not boot:\n{(disk / 'console.log').read_text()[-2000:]}")
            time.sleep(0.05)

    def off(self, host: int) -> None:
        """Cuts the power: first the cable, so that no connection is closed properly, then every process at once."""
        with suppress(subprocess.CalledProcessError):
            _run("ip", "-n", self._switch, "link", "del", f"host{host}")
        if self.is_on(host):
            process = self._process(host)
            os.kill(process, 9)
            while Path(f"/proc/{process}").exists():
                time.sleep(0.05)
        (self.disk(host) / "pid").unlink(missing_ok=True)
        if Path("/run/netns", self.name(host)).exists():
            _run("ip", "netns", "del", self.name(host))

    def is_on(self, host: int) -> bool:
        """Its first process is there: alive, and of namespaces that are not this machine's."""
        process = self._process(host)
        try:
            return process > 0 and Path(f"/proc/{process}/ns/pid").readlink() != Path("/proc/self/ns/pid").readlink()
        except FileNotFoundError:
            return False

    def command(self, host: int, line: str) -> list[str]:
        """The command that runs a line of bash on a host as root, at home; its processes end with the host."""
        if not self.is_on(host):
            raise RuntimeError(f"host {host} is off")
        inside = [
            "nsenter",
            "--target",
            str(self._process(host)),
            "--mount",
            "--net",
            "--pid",
            "--uts",
            "--ipc",
            "--root",
        ]
        environment = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        return [*inside, "env", "-i", *environment, "bash", "-c", f"cd\n{line}"]

    def run(self, host: int, line: str, *, check: bool = True, timeout: float = 1200.0) -> subprocess.CompletedProcess:
        """Runs a line of bash on a host; what it prints is in `stdout`, errors too."""
        answer = subprocess.run(
            self.command(host, line), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout
        )
        if check and answer.returncode:
            raise RuntimeError(f"host {host}: {line}: exit status {answer.returncode}:\n{answer.stdout[-4000:]}")
        return answer

    def down(self) -> None:
        """Ends every host and deletes all of them, the shared folder too."""
        for host in self.all():
            self.off(host)
        if Path("/run/netns", self._switch).exists():
            _run("ip", "netns", "del", self._switch)
        shutil.rmtree(self.state, ignore_errors=True)

    def all(self) -> list[int]:
        """Every host that was made, on or off."""
        return sorted(int(path.name) for path in self.state.glob("[0-9]*"))

    @property
    def _switch(self) -> str:
        return f"{self.prefix}-switch"

    @property
    def _key(self) -> Path:
        return self.state / "key"

    def _process(self, host: int) -> int:
        try:
            return int((self.disk(host) / "pid").read_text())
        except FileNotFoundError:
            return 0

    def _answers(self, host: int) -> bool:
        if not self.is_on(host):
            return False
        listening = _run("ip", "netns", "exec", self.name(host), "ss", "-Hltn", "sport = :22")
        return self.address(host) in listening

    def _plug_in(self, host: int) -> None:
        """A network of its own, with a cable to the switch."""
        name, cable = self.name(host), f"host{host}"
        _run("ip", "netns", "add", name)
        _run("ip", "-n", self._switch, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "-n", self._switch, "link", "set", cable, "master", "br0", "up")
        hardware = ":".join(["02", "00", *(f"{int(number):02x}" for number in self.address(host).split("."))])
        _run("ip", "-n", name, "link", "set", "eth0", "address", hardware)  # after a power cut too: neighbours know it
        _run("ip", "-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", name, "link", "set", "eth0", "up")

    def _make_disk(self, host: int) -> None:
        disk = self.disk(host)
        if (disk / "etc").exists():
            return
        for name in (
            "root/.ssh",
            "tmp",
            "var/log",
            "var/tmp",
            "var/empty",
            "var/lib",
            "venv/upper",
            "venv/work",
            "new",
        ):
            (disk / name).mkdir(parents=True)
        for name, mode in (("root", 0o700), ("root/.ssh", 0o700), ("tmp", 0o1777), ("var/tmp", 0o1777)):
            (disk / name).chmod(mode)
        for name in (".bashrc", ".profile"):
            shutil.copy(Path("/etc/skel", name), disk / "root")
        (disk / "var/log/lastlog").touch()
        shutil.copy(self._key.with_suffix(".pub"), disk / "root/.ssh/authorized_keys")
        if host == OPERATOR:
            shutil.copy(self._key, disk / "root/.ssh/key")
        _run("cp", "-a", "/etc", str(disk))
        for path in (disk / "etc/ssh").glob("ssh_host_*"):
            path.unlink()
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(disk / "etc/ssh/ssh_host_ed25519_key"))
        (disk / "etc/ssh/sshd_config").write_text("\n".join(self._sshd_settings(host)) + "\n")
        (disk / "etc/hostname").write_text(self.name(host) + "\n")
        (disk / "etc/resolv.conf").write_text("")
        names = [f"{self.address(other)} {self.name(other)}" for other in range(100)]
        (disk / "etc/hosts").write_text("\n".join(["127.0.0.1 localhost", *names]) + "\n")

    def _sshd_settings(self, host: int) -> Iterator[str]:
        yield f"ListenAddress {self.address(host)}:22"
        yield "PermitRootLogin prohibit-password"
        yield "PasswordAuthentication no"
        yield "UsePAM no"
        yield "MaxStartups 100"
        yield "Subsystem sftp internal-sftp"


def _run(*command: str) -> str:
    """What a command prints.

    Raises:
        subprocess.CalledProcessError: it ended otherwise than with 0.
    """
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prefix", default="study", help="of the names of hosts and namespaces (study)")
    parser.add_argument("--subnet", default="10.88.7", help="the first three numbers of addresses (10.88.7)")
    parser.add_argument("--state", type=Path, help="where disks lie (/var/tmp/PREFIX-hosts)")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("up", help="make hosts and switch them on").add_argument("count", type=int)
    for action in ("on", "off"):
        actions.add_parser(action, help=f"switch a host {action}").add_argument("host", type=int)
    run = actions.add_parser("exec", help="run a line of bash on a host")
    run.add_argument("host", type=int)
    run.add_argument("line")
    actions.add_parser("down", help="end and delete all of them")
    options = parser.parse_args(argv)
    if reason := missing():
        print(reason, file=sys.stderr)
        return 2
    state = options.state or Path(f"/var/tmp/{options.prefix}-hosts")
    hosts = Hosts(prefix=options.prefix, subnet=options.subnet, state=state)
    if options.action == "exec":
        return subprocess.run(hosts.command(options.host, options.line)).returncode
    arguments = {"up": ("count",), "on": ("host",), "off": ("host",), "down": ()}[options.action]
    getattr(hosts, options.action)(*(getattr(options, name) for name in arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
