"""Requests to an endpoint, one after another, while a test does something."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from support.server import eventually

__all__ = ["Traffic", "traffic"]


@dataclass
class Traffic:
    answers: int = 0
    errors: list[BaseException] = field(default_factory=list)

    def goes_on(self, count: int = 20) -> None:
        """Waits for so many further answers."""
        goal = self.answers + count
        eventually(lambda: self.answers >= goal or bool(self.errors))


@contextmanager
def traffic(runtime: Any, *endpoints: str) -> Iterator[Traffic]:
    """Invokes the endpoints in turn until the block ends; `runtime` is a client of boto3's."""
    seen, ending = Traffic(), threading.Event()

    def run() -> None:
        while not ending.wait(0.02):
            for endpoint in endpoints:
                try:
                    runtime.invoke_endpoint(
                        EndpointName=endpoint, Body=b"[1]", ContentType="application/json"
                    )["Body"].read()
                    seen.answers += 1
                except Exception as error:
                    seen.errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seen
    finally:
        ending.set()
        thread.join()
