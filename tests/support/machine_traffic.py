"""Synchronous requests to a cluster whose nodes die, and which deaths explain which errors.

A caller goes from gateway to gateway as a load balancer does: where nobody listens, nothing was
sent, and the next one is asked.
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
)

from support.deploy import Deployer, pack
from support.killed_machines import Machines, NodeKill

__all__ = ["Call", "Traffic", "deploy_echo", "deploy_many", "unexplained"]

MODELS = 6
BOUND_SECONDS = 30
"""for a call: what hangs for so long is an error"""
PAUSE_SECONDS = 0.02
NOTED = """
import os

def note(body):
    # Whatever has begun is known, also if this process is killed.
    with open({begun!r}, "ab", buffering=0) as file:
        file.write(body + b" " + os.environ["SAGEMAKER_BASE_DIR"].encode() + b"\\n")

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    body = body.encode() if isinstance(body, str) else body
    note(body)
    return {prefix!r} + body, "text/plain"
"""


def deploy_echo(deployer: Deployer, name: str, begun: Path, instances: int) -> None:
    """An endpoint with an instance on each node."""
    script = NOTED.format(begun=str(begun), prefix=b"")
    described = deployer.endpoint(name, script, InitialInstanceCount=instances)
    assert described["EndpointStatus"] == "InService"


def deploy_many(deployer: Deployer, name: str, begun: Path, instances: int) -> None:
    """A multi-model endpoint, each of whose models says its number first."""
    deployer.s3.create_bucket(Bucket="many")
    for number in range(MODELS):
        script = NOTED.format(begun=str(begun), prefix=b"%d:" % number)
        body = pack({"code/inference.py": script})
        deployer.s3.put_object(Bucket="many", Key=f"{name}/{number}.tar.gz", Body=body)
    deployer.multi_model(name, instances)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request, and what became of it; times are monotonic."""

    caller: int
    body: str
    url: str
    began: float
    ended: float
    error: str = ""
    """empty: it was answered right"""

    @property
    def is_broken(self) -> bool:
        """Whether its connection to the gateway was lost."""
        return self.error.startswith("connection:")


class Traffic:
    """Calls two endpoints without an end, from the start of the `with` block to its end."""

    def __init__(
        self, machines: Machines, single: str, many: str, begun: Path, callers: int = 6
    ) -> None:
        self._machines = machines
        self._single, self._many = single, many
        self._begun = begun
        self._ending = threading.Event()
        self._callers = callers
        self.calls: list[list[Call]] = [[] for _ in range(callers)]
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(callers)]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _run(self, caller: int) -> None:
        clients: dict[str, Any] = {}
        turn = caller
        for number in itertools.count():
            if self._ending.is_set():
                return
            body = f"{caller}-{number}"
            began = time.monotonic()
            while True:  # until somebody listens
                turn += 1
                urls = self._machines.urls
                url = urls[turn % len(urls)]
                if url not in clients:
                    clients[url] = self._machines.client_at(
                        url, "sagemaker-runtime", read_timeout=BOUND_SECONDS, connect_timeout=5
                    )
                error = self._call(clients[url], caller, number, body)
                if error is not None or self._ending.is_set():
                    break
                self._ending.wait(PAUSE_SECONDS)
            if error is not None:
                ended = time.monotonic()
                self.calls[caller].append(
                    Call(caller=caller, body=body, url=url, began=began, ended=ended, error=error)
                )
            self._ending.wait(PAUSE_SECONDS)

    def _call(self, client: Any, caller: int, number: int, body: str) -> str | None:
        """Returns the error, empty for none; None if nothing was sent."""
        is_single = caller % 3 != 0
        model = number % MODELS
        where = {"EndpointName": self._single}
        if not is_single:
            where = {"EndpointName": self._many, "TargetModel": f"{model}.tar.gz"}
        try:
            answer = client.invoke_endpoint(**where, Body=body, ContentType="text/plain")
            text = answer["Body"].read().decode()
        except (EndpointConnectionError, ConnectTimeoutError):
            return None
        except ClientError as error:
            code = error.response["Error"]["Code"]
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            return f"{status} {code}: {error.response['Error']['Message']}"
        except BotoCoreError as error:
            return f"connection: {type(error).__name__}: {error}"
        expected = body if is_single else f"{model}:{body}"
        return "" if text == expected else f"wrong answer: {text!r}"

    def begun(self) -> dict[str, list[str]]:
        """The folders of the containers that have begun each request."""
        found: dict[str, list[str]] = {}
        for line in self._begun.read_text().splitlines():
            body, _, folder = line.partition(" ")
            found.setdefault(body, []).append(folder)
        return found

    def errors(self) -> list[Call]:
        return [call for calls in self.calls for call in list(calls) if call.error]

    def back_after(self, kill: NodeKill) -> float | None:
        """Seconds from a kill until each caller was answered right, and the last error was over;
        None while that is not so yet."""
        ends = []
        for calls in self.calls:
            later = [call for call in list(calls) if call.ended > kill.began]
            after = [call for call in later if call.began >= kill.ended]
            right = next((call.ended for call in after if not call.error), None)
            if right is None:
                return None
            ends += [right, *(call.ended for call in later if call.error)]
        return max(ends) - kill.began

    def longest_of_right(self) -> float:
        return max(call.ended - call.began for calls in self.calls for call in calls)


def reason(call: Call, kills: list[NodeKill], begun: dict[str, list[str]]) -> str | None:
    """Says which death explains an error, and how; None if none does."""
    folders = begun.get(call.body, [])
    for number, kill in enumerate(kills, start=1):
        if not (call.began <= kill.ended and call.ended >= kill.began):
            continue
        if call.is_broken:
            if call.url == kill.url:
                return f"{number}: at the killed node's gateway"
        elif len(folders) == 1 and folders[0].startswith(str(kill.machine.home)):
            return f"{number}: begun on the killed node"
        elif not folders and call.error.startswith("424"):
            return f"{number}: on its way to the killed node"
    return None


def unexplained(traffic: Traffic, kills: list[NodeKill]) -> Iterator[Call]:
    begun = traffic.begun()
    return (call for call in traffic.errors() if reason(call, kills, begun) is None)


def twice_begun(traffic: Traffic) -> list[str]:
    counts = Counter({body: len(folders) for body, folders in traffic.begun().items()})
    return [body for body, count in counts.items() if count > 1]
