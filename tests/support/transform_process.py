"""A runner of transform jobs as control drives it: a process and its pipes."""

import json
import subprocess
import sys
import threading
from typing import Any

import msgspec

from sagehen.services.sagemaker.transform.runner_messages import (
    InstanceAddress,
    Instances,
    RunnerSpec,
    S3Access,
    Stop,
)
from support.server import Server, eventually

__all__ = ["RunnerProcess", "access_of", "instances_of"]


def access_of(server: Server) -> S3Access:
    keys = json.loads((server.home / "credentials.json").read_text())
    return S3Access(address=f"unix:{server.home}/run/control.sock", region="us-east-1", **keys)


def instances_of(server: Server, endpoint: str) -> tuple[InstanceAddress, ...]:
    """The instances that serve an endpoint."""
    table = json.loads((server.home / "run" / "routes.json").read_text())
    routes = [route for name, route in table["routes"].items() if name == endpoint]
    return tuple(
        InstanceAddress(instance_id=entry["instance_id"], address=entry["address"])
        for route in routes
        for variant in route["variants"]
        for entry in variant["instances"]
    )


class RunnerProcess:
    """`messages`: what it has told so far, as JSON."""

    def __init__(
        self, spec: RunnerSpec, instances: tuple[InstanceAddress, ...], *arguments: str
    ) -> None:
        self.spec = spec
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sagehen.app.roles.transform_runner", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.messages: list[dict[str, Any]] = []
        self.errors = b""
        self._threads = [
            threading.Thread(target=self._read),
            threading.Thread(target=self._read_errors),
        ]
        for thread in self._threads:
            thread.start()
        self.send(spec)
        self.send(Instances(instances=instances))

    def send(self, message: msgspec.Struct) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(message) + b"\n")
        self.process.stdin.flush()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in list(self.messages) if message["type"] == kind]

    def wait_for(self, kind: str) -> dict[str, Any]:
        eventually(lambda: bool(self.of(kind)) or self.process.poll() is not None)
        if not self.of(kind):
            self.end()
            raise AssertionError(self.errors.decode())
        return self.of(kind)[0]

    def result(self) -> dict[str, Any]:
        """The last message, once the process has ended."""
        status = self.end()
        assert status == 0, self.errors.decode()
        return self.messages[-1]

    def stop(self) -> int:
        self.send(Stop())
        return self.end()

    def leave(self) -> int:
        """Ends as if control had been killed."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.end()

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> int:
        status = self.process.wait(120)
        for thread in self._threads:
            thread.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        return status

    def next_spec(self) -> RunnerSpec:
        """What control would tell the next runner."""
        spec = self.spec
        done = [key for message in self.of("done") for key in message["keys"]]
        through = [message["through"] for message in self.of("done") if message["through"]]
        return msgspec.structs.replace(
            spec,
            done=(*spec.done, *done),
            done_through=through[-1] if through else spec.done_through,
        )

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.messages.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()
