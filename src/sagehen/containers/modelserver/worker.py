"""The worker process, which runs the user's code.

    python -m sagehen.containers.modelserver.worker SOCKET PARENT

`workers/process.py` starts the worker, which exits when the server closes the socket or dies.
"""

import faulthandler
import os
import resource
import signal
import socket
import sys
import threading

from sagehen.base.processes import die_with_parent

__all__: list[str] = []


def main(descriptor: int, parent_pid: int) -> None:
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
    _serve(connection)


def _serve(connection: socket.socket) -> None:
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
            Serving(adapter, inbox, outlet).run(message)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
