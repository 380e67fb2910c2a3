"""The worker process, which runs the user's code.

    python -m sagehen.containers.modelserver.worker SOCKET PARENT [MODEL FOLDER]

`workers/process.py` starts the worker, or `workers/preforked.py` forks it; it exits when the server
closes the socket or dies. MODEL and FOLDER are those of a load that had begun when the worker
replaced itself.
"""

import faulthandler
import os
import resource
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from sagehen.base.processes import die_with_parent
from sagehen.containers.modelserver import forked

if TYPE_CHECKING:
    from sagehen.containers.modelserver.contract import Adapter, BatchModel, CallModel
    from sagehen.containers.modelserver.workers.messages import Load

__all__: list[str] = []

WORKER_MODULE = "sagehen.containers.modelserver.worker"


def main(descriptor: int, parent_pid: int, model: str = "", folder: str = "") -> None:
    die_with_parent(parent_pid)
    # The server ends a hanging worker by SIGABRT; the log shows where it hung.
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    # On Ctrl-C the server ends its workers. Not SIG_IGN: the user code's programs would inherit it.
    signal.signal(signal.SIGINT, lambda number, at: None)
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    # Forked processes must not use the server's socket either.
    os.register_at_fork(after_in_child=connection.close)
    _serve(connection, parent_pid, (int(model), folder) if model else None)


def _serve(connection: socket.socket, parent_pid: int, begun: tuple[int, str] | None) -> None:
    # Imported after die_with_parent, with the user's packages in place.
    from sagehen.containers.modelserver.adapters import make_adapter
    from sagehen.containers.modelserver.environment import read_environment, set_up_log
    from sagehen.containers.modelserver.workers.messages import Load
    from sagehen.containers.modelserver.workers.serving import (
        Outlet,
        QueueInbox,
        Serving,
        SocketInbox,
    )

    environment = read_environment(os.environ)
    set_up_log(environment.log_level)
    adapter = make_adapter(environment)
    inbox, outlet = SocketInbox(connection), Outlet(connection)
    if begun is not None:
        Serving(adapter, inbox, outlet).run(Load(*begun))
    models: dict[int, QueueInbox] = {}

    def serve_apart(load: Load, model_inbox: QueueInbox) -> None:
        Serving(adapter, model_inbox, outlet).run(load)
        del models[load.model]

    while True:
        received = inbox.take()
        message = received[0]
        if not isinstance(message, Load):
            models[message.model].put(received)
        elif environment.multi_model:
            # A thread per model, so that none waits for another.
            model_inbox = models[message.model] = QueueInbox()
            threading.Thread(target=serve_apart, args=(message, model_inbox), daemon=True).start()
        else:
            # The only model reads the socket directly.
            Serving(_unless_shadowed(adapter, connection, parent_pid, message), inbox, outlet).run(
                message
            )


def _unless_shadowed(
    adapter: "Adapter", connection: socket.socket, parent_pid: int, load: "Load"
) -> "Adapter":
    return _AnewIfShadowed(adapter, connection, parent_pid, load) if forked.is_forked() else adapter


class _AnewIfShadowed:
    """Loads in a new process if the script has installed, or put before the others in `sys.path`,
    a module that was imported before it ran: it would have got its own."""

    def __init__(
        self, adapter: "Adapter", connection: socket.socket, parent_pid: int, load: "Load"
    ) -> None:
        self._adapter = adapter
        self._connection = connection
        self._parent_pid = parent_pid
        self._load = load

    def needs_worker(self, model_dir: Path) -> bool:
        return self._adapter.needs_worker(model_dir)

    def load(self, model_dir: Path) -> "BatchModel | CallModel":
        try:
            return self._adapter.load(model_dir)
        finally:
            if forked.shadowed_module() is not None:
                self._connection.set_inheritable(True)
                numbers = (self._connection.fileno(), self._parent_pid, self._load.model)
                forked.exec_anew(WORKER_MODULE, *map(str, numbers), self._load.folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
