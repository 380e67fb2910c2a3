"""A Ray cluster in a process of its own, whose nodes die and come back.

`python ray_machines.py FOLDER HOST=HOME ...` prints Ray's address; the first host has Ray's head,
whose tables are in the folder. It answers each line with a line of JSON:

    pids HOST     the processes of Ray on that node, which are to be killed by the reader
    start HOST    starts them again, as a machine's service manager does

It ends with its standard input.
"""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

CPUS = 64
START_SECONDS = 300
MEMORY_BYTES = 256 * 2**30
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    # Ray does not decide whether a node lives, and must not end one on a busy machine.
    "RAY_health_check_initial_delay_ms": "5000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "10000",
    "RAY_health_check_failure_threshold": "5",
    # Ray's head can come back only where its tables outlive it.
    "RAY_gcs_storage": "rocksdb",
}


class Nodes:
    def __init__(self, folder: Path, homes: dict[str, str]) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster()
        self._homes = homes
        self._nodes: dict[str, Any] = {}
        for host in homes:
            self._add(host)
        self._head = next(iter(homes))
        self._head_commands = self._list_head_commands()
        self._again: list[subprocess.Popen[bytes]] = []
        self._log = (folder / "head.log").open("ab")
        self.address = str(self._cluster.address)

    def _add(self, host: str) -> None:
        """On a busy machine Ray's processes miss time limits that nothing can change."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            before = {child.pid for child in psutil.Process().children()}
            try:
                return self._add_once(host)
            except Exception:
                if time.monotonic() > deadline:
                    raise
                for child in psutil.Process().children():
                    if child.pid not in before:
                        child.kill()

    def _add_once(self, host: str) -> None:
        head = {"include_dashboard": False} if self._cluster.head_node is None else {}
        self._nodes[host] = self._cluster.add_node(
            wait=False,
            node_ip_address=host,
            num_cpus=CPUS,
            memory=MEMORY_BYTES,
            env_vars={"SAGEHEN_HOME": self._homes[host]},
            **head,
            **_ports(host),
        )

    def _list_head_commands(self) -> list[tuple[list[str], dict[str, str]]]:
        """The processes that only the head has; Ray's tables first."""
        port = self._cluster.address.rpartition(":")[2]
        found = []
        for name, processes in self._cluster.head_node.all_processes.items():
            if name != "raylet":
                process = psutil.Process(processes[0].process.pid)
                command = [
                    f"--gcs_server_port={port}" if word.startswith("--gcs_server_port=") else word
                    for word in process.cmdline()
                ]
                found.append((name, command, process.environ()))
        found.sort(key=lambda each: each[0] != "gcs_server")
        return [(command, environment) for _, command, environment in found]

    def pids(self, host: str) -> list[int]:
        tops = [
            info.process.pid
            for processes in self._nodes[host].all_processes.values()
            for info in processes
        ]
        if host == self._head:
            tops += [process.pid for process in self._again]
        found: dict[int, None] = {}
        for pid in tops:
            try:
                top = psutil.Process(pid)
                found.update(dict.fromkeys([pid, *(c.pid for c in top.children(recursive=True))]))
            except psutil.NoSuchProcess:
                continue
        return list(found)

    def start(self, host: str) -> None:
        node = self._nodes[host]
        if host == self._head:
            for process in self._again:
                process.wait()
            self._again = [
                subprocess.Popen(command, env=environment, stdout=self._log, stderr=self._log)
                for command, environment in self._head_commands
            ]
        if node is not self._cluster.head_node:
            self._cluster.remove_node(node, allow_graceful=False)
        self._add(host)

    def close(self) -> None:
        for process in self._again:
            process.kill()
            process.wait()
        self._cluster.shutdown()
        self._log.close()


def _ports(host: str) -> dict[str, int]:
    """Free ones for Ray's processes: it waits 15 s, and no more, for those that they choose."""
    names = ("dashboard_agent_listen", "metrics_agent", "metrics_export", "runtime_env_agent")
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server((host, 0))) for _ in names]
        return {
            f"{name}_port": each.getsockname()[1] for name, each in zip(names, held, strict=True)
        }


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ.update(ENVIRONMENT, RAY_gcs_storage_path=str(folder / "gcs"))
    # Ray prints what it does.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    nodes = Nodes(folder, dict(word.split("=", 1) for word in sys.argv[2:]))
    answers.write(f"{nodes.address}\n")
    try:
        for line in sys.stdin:
            order, host = line.split()
            answers.write(json.dumps(getattr(nodes, order)(host)) + "\n")
    finally:
        nodes.close()


if __name__ == "__main__":
    main()
