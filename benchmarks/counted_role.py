"""A process of the server as it is, with counters: for control_scale.py.

    counted_role.py ROLE COUNTS [the role's own arguments]

COUNTS is a Unix socket. Each connection to it gets one line of JSON: the processor time and memory
of the process, its SQL statements, and calls and processor time of some functions.
"""

import json
import os
import runpy
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
COUNTS: defaultdict[str, float] = defaultdict(float)


def main() -> None:
    role, counts, *arguments = sys.argv[1:]
    {"control": count_control, "gateway": count_gateway}[role]()
    serve_counts(counts)
    module = f"sagehen.app.roles.{role}"
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def count_control() -> None:
    from sqlalchemy import Engine, event

    from sagehen.agent.client import NodeClient
    from sagehen.placement.fleet import Fleet
    from sagehen.services.monitoring.metering.recorder import Recorder
    from sagehen.services.sagemaker.hosting.reconciler.endpoints import EndpointPass
    from sagehen.services.sagemaker.hosting.reconciler.routes import RouteFile

    event.listen(Engine, "before_cursor_execute", lambda *_: add("statements", 1))
    count(EndpointPass, "run", "pass")
    count(RouteFile, "write" if hasattr(RouteFile, "write") else "publish", "publish")
    count(Fleet, "_settle", "settle")
    count(Recorder, "flush", "flush")
    count_bytes(NodeClient)


def count_gateway() -> None:
    from sagehen.gateway.routing.routes import Routes

    count(Routes, "_apply", "apply")
    count(Routes, "refresh", "refresh")


def count(owner: type, method: str, name: str) -> None:
    """Counts the calls of a method and their processor time."""
    if not hasattr(owner, method):
        return  # not in every version that is compared
    function = getattr(owner, method)

    @wraps(function)
    def counted(*args: Any, **more: Any) -> Any:
        began = time.thread_time()
        try:
            return function(*args, **more)
        finally:
            add(f"{name}_seconds", time.thread_time() - began)
            add(f"{name}_calls", 1)

    setattr(owner, method, counted)


def count_bytes(client: Any) -> None:
    """Counts the requests to the agents of nodes, and the bytes of their bodies."""
    send: Callable[..., Any] = client._send

    async def counted(self: Any, method: str, path: str, body: bytes, timeout: float) -> Any:
        add("node_requests", 1)
        add("node_bytes", len(body))
        if path.startswith("/routes"):
            add("routes_requests", 1)
            add("routes_bytes", len(body))
        answer = await send(self, method, path, body, timeout)
        add("node_answer_bytes", len(answer.body))
        return answer

    client._send = counted


def add(name: str, value: float) -> None:
    COUNTS[name] += value


def serve_counts(path: str) -> None:
    """Answers in a thread of its own."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    threading.Thread(target=_answer_all, args=(listener,), daemon=True).start()


def _answer_all(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
            own = {"cpu_seconds": time.process_time(), "resident_bytes": resident}
            connection.sendall(json.dumps({**COUNTS, **own}).encode())


if __name__ == "__main__":
    main()
