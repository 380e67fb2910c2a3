"""Machines of a cluster on this one: as different from one another as the kernel can make them.

    the test, PostgreSQL and S3 at 10.77.0.254 ── bridge ──┬── machine 1, 10.77.0.1
                                                           └── machine 2, 10.77.0.2 ...

Each has its own network, processes, hostname, /tmp, /dev/shm, /run and disk, and no cgroups. The
disk is /mnt on each, with the home folder: paths are the same everywhere, what lies there is not.
The tests' thread is on the bridge's network while there are machines: start no shared server there.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from botocore.config import Config

from support.own_network import own_network
from support.postgres import running_postgres
from support.server import (
    ONE_GATEWAY,
    children,
    clean_environment,
    eventually,
    server_maker,
)

__all__ = ["OUTSIDE", "Machine", "MachinesNetwork", "machines_network", "shared_stores"]

NETWORK = "10.77.0"
OUTSIDE = f"{NETWORK}.254"
"""where the test is, and what it starts for all machines"""
BRIDGE = "machines"
NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")
SAGEHEN = str(Path(sys.executable).with_name("sagehen"))
CHECKOUT = Path(__file__).parents[2]
HOME = "/mnt/home"
SECONDS = 120

BOOT = """
set -e
hostname "$2"
mount --bind "$1" /mnt
mkdir -p /mnt/checkout
mount --bind "$3" /mnt/checkout  # which may lie below one of the folders that are hidden now
for folder in /tmp /dev/shm /run /var/tmp; do mount -t tmpfs machine "$folder"; done
mkdir -p "$3"
mount --move /mnt/checkout "$3"
if mountpoint -q /sys/fs/cgroup; then umount -R /sys/fs/cgroup; fi
printf '127.0.0.1 localhost\\n127.0.1.1 %s\\n' "$2" > /mnt/hosts
mount --bind /mnt/hosts /etc/hosts
ip link set lo up
echo booted
cat > /dev/null  # until the test ends, or power is off
"""


def _why_not() -> str:
    """Why there can be no machines here; empty: there can."""
    missing = [each for each in ("ip", "unshare", "nsenter", "mount") if not shutil.which(each)]
    if missing:
        return f"{', '.join(missing)} is not installed"
    if os.geteuid() != 0:
        return "only root makes machines of network and mount namespaces"
    trial = "ip link add bridge0 type bridge && ip link add veth0 type veth peer name veth1"
    command = ["unshare", *NAMESPACES, "--fork", "sh", "-c", trial]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"the kernel makes no machines: {told.stderr}" if told.returncode else ""


def _need_machines() -> None:
    """Skips the tests where the kernel forbids machines."""
    if reason := _why_not():
        pytest.skip(reason)


class Machine:
    """A machine that is on. `disk` is its /mnt, as the test sees it; it outlives `power_off`."""

    def __init__(self, number: int, disk: Path) -> None:
        self.number = number
        self.name = f"machine-{number}"
        self.address = f"{NETWORK}.{number}"
        self.disk = disk
        (disk / "home").mkdir(parents=True)
        self._init: subprocess.Popen[str] | None = None
        self._commands: list[subprocess.Popen[bytes]] = []
        self.server: subprocess.Popen[bytes] | None = None
        self.boot()

    @property
    def home(self) -> Path:
        """Sagehen's home there, as the test sees it."""
        return self.disk / "home" / ".sagehen"

    @property
    def url(self) -> str:
        """Of the server there for others, if it listens for them."""
        port = (self.home / "run" / "address").read_text().rpartition(":")[2]
        return f"http://{self.address}:{port}"

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.home / 'token').read_text()}"}

    def configure(self, **settings: str | int | dict[str, str]) -> None:
        """Writes sagehen.toml there."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        lines = [f"{name} = {_toml(value)}\n" for name, value in settings.items()]
        (self.home / "sagehen.toml").write_text("".join(lines))

    def boot(self) -> None:
        command = ["unshare", *NAMESPACES, "--fork", "--mount-proc", "--kill-child"]
        script = ["sh", "-c", BOOT, "init", str(self.disk), self.name, str(CHECKOUT)]
        with (self.disk / "boot.log").open("w") as errors:
            self._init = subprocess.Popen(
                [*command, *script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._init.stdout is not None
        booted = self._init.stdout.readline()
        assert booted, (self.disk / "boot.log").read_text()
        pid = str(self._pid())
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", pid)
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        _ip("link", "set", self._cable, "master", BRIDGE, "up")
        self.run("ip", "route", "add", "default", "via", OUTSIDE)

    def power_off(self) -> None:
        """As if the plug were pulled: nobody hears of it. Only the disk stays."""
        if self._init is None:
            return
        self.unplug()
        os.kill(self._pid(), signal.SIGKILL)
        self._init.communicate()
        for each in self._commands:
            each.wait(SECONDS)
        self._commands.clear()
        self._init = self.server = None
        # The namespace, and with it the cable, may outlive its last process for a moment.
        with suppress(subprocess.CalledProcessError):
            _ip("link", "delete", self._cable)

    def unplug(self) -> None:
        """Takes the cable of its network away: what is sent is lost."""
        _ip("link", "set", self._cable, "down")

    def plug_in(self) -> None:
        _ip("link", "set", self._cable, "up")

    def start(self, *command: str, log: str = "log", **environment: str) -> subprocess.Popen[bytes]:
        """Starts a command there, with its output in a file of the disk."""
        with (self.disk / log).open("ab") as output:
            started = subprocess.Popen(
                [*self._enter(), *command],
                env=self.environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._commands.append(started)
        return started

    def run(self, *command: str, check: bool = True, **environment: str) -> str:
        """Returns what a command prints there."""
        told = subprocess.run(
            [*self._enter(), *command],
            env=self.environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert told.returncode == 0 or not check, told.stdout
        return told.stdout

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a user there, who has this Python on the PATH."""
        own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": HOME}
        mine = clean_environment()
        for name in ("TMPDIR", "TMP", "TEMP", "XDG_RUNTIME_DIR"):
            mine.pop(name, None)
        return mine | own | ONE_GATEWAY | dict(more or {})

    def up(self, *arguments: str, wait: bool = True, **environment: str) -> None:
        """Runs `sagehen up` with these arguments, until `down` or `power_off`."""
        (self.home / "run" / "address").unlink(missing_ok=True)
        self.server = self.start(SAGEHEN, "up", *arguments, log="up.log", **environment)
        if wait:
            self.wait_until_up()

    def wait_until_up(self) -> None:
        def is_up() -> bool:
            assert self.server is not None
            assert self.server.poll() is None, (self.disk / "up.log").read_text()
            return (self.home / "run" / "address").exists()

        eventually(is_up)

    def down(self) -> int:
        """Ends the server as Ctrl-C would; returns its exit status."""
        assert self.server is not None
        self.signal(self.server, signal.SIGINT)
        return self.server.wait(SECONDS)

    def signal(self, started: subprocess.Popen[bytes], number: int) -> None:
        """To a command that was started there."""
        for pid in children(started.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def runs(self, text: str) -> bool:
        """Whether a process of what was started there has the text in its command line."""
        if self._init is None:
            return False
        for pid in (self._init.pid, *(each.pid for each in self._commands)):
            with suppress(psutil.NoSuchProcess):
                for each in psutil.Process(pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                        if any(text in word for word in each.cmdline()):
                            return True
        return False

    def client(self, service: str, region: str = "us-east-1", **config: Any) -> Any:
        """A boto3 client of the server there; errors are not retried unless `config` says so."""
        return self.client_at(self.url, service, region, **config)

    def client_at(self, url: str, service: str, region: str = "us-east-1", **config: Any) -> Any:
        keys = json.loads((self.home / "credentials.json").read_text())
        return boto3.client(
            service,
            endpoint_url=url,
            aws_access_key_id=keys["access_key"],
            aws_secret_access_key=keys["secret_key"],
            region_name=region,
            config=Config(**{"retries": {"max_attempts": 0}, **config}),
        )

    def seen_through(self, other: "Machine") -> "_Gateway":
        """The server of this machine by the gateway of another one, which has no server."""
        return _Gateway(self, f"http://{other.address}:{self.url.rpartition(':')[2]}")

    @property
    def _cable(self) -> str:
        return f"machine{self.number}"

    def _pid(self) -> int:
        """Of the machine's first process, as the test sees it."""
        assert self._init is not None, f"{self.name} is off"
        (pid,) = children(self._init.pid)
        return pid

    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self._pid()}", *NAMESPACES, f"--wdns={HOME}"]


@dataclass(frozen=True)
class _Gateway:
    machine: Machine
    url: str

    def client(self, service: str, region: str = "us-east-1", **config: Any) -> Any:
        return self.machine.client_at(self.url, service, region, **config)


class MachinesNetwork:
    """The bridge between machines; `machine(n)` turns on the one at 10.77.0.n."""

    def __init__(self, disks: Path) -> None:
        self._disks = disks
        self._made: dict[int, Machine] = {}
        # Else it would be that of a machine, which would go with it, while others remember it.
        _ip("link", "add", BRIDGE, "address", "02:00:00:00:00:fe", "type", "bridge")
        _ip("addr", "add", f"{OUTSIDE}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")

    def machine(self, number: int) -> Machine:
        if number not in self._made:
            self._made[number] = Machine(number, self._disks / str(number))
        return self._made[number]

    def close(self) -> None:
        for each in self._made.values():
            each.power_off()


@contextmanager
def machines_network() -> Iterator[MachinesNetwork]:
    """All machines are gone afterwards."""
    _need_machines()
    disks = Path(tempfile.mkdtemp(prefix="sgm-"))
    try:
        with own_network():
            network = MachinesNetwork(disks)
            try:
                yield network
            finally:
                network.close()
    finally:
        shutil.rmtree(disks, ignore_errors=True)


@contextmanager
def shared_stores() -> Iterator[dict[str, str | dict[str, str]]]:
    """PostgreSQL and S3 on the bridge, as settings of all machines. Another server is the S3."""
    with running_postgres(OUTSIDE, f"{NETWORK}.0/24") as url, server_maker() as make_server:
        keeper = make_server(gates=False, host=OUTSIDE)
        keeper.client("s3").create_bucket(Bucket="cluster")
        options = {
            "endpoint": keeper.url,
            "access_key_id": keeper.env["AWS_ACCESS_KEY_ID"],
            "secret_access_key": keeper.env["AWS_SECRET_ACCESS_KEY"],
            "region": "us-east-1",
            "virtual_hosted_style_request": "false",
        }
        yield {
            "database_url": url,
            "object_store_url": "s3://cluster/kept",
            "object_store_options": options,
        }


def _toml(value: str | int | dict[str, str]) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + " }"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
