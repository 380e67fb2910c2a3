"""Runs the user's code and nothing else.

    python -m sagehen.containers.modelserver.worker SOCKET PARENT

Started by `workers/process.py`. It ends when the server closes the socket, or is gone.
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
    # It is ended by SIGABRT when a call does not come back: where that was is then in the log.
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    # Ctrl-C is for the server, which ends its workers; no signal is ignored, as programs that the
    # user's code starts would inherit that.
    signal.signal(signal.SIGINT, lambda number, at: None)
    end = socket.socket(fileno=descriptor)
    end.set_inheritable(False)
    # Nor may what the user's code forks talk to the server.
    os.register_at_fork(after_in_child=end.close)
    _serve(end)


def _serve(end: socket.socket) -> None:
    # Now, because the parent's death is told, and the user's own packages are in place.
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
    inbox, outlet = SocketInbox(end), Outlet(end)
    models: dict[int, QueueInbox] = {}

    def serve_apart(load: Load, own: QueueInbox) -> None:
        Serving(adapter, own, outlet).run(load)
        del models[load.model]

    while (order := inbox.take()) is not None:
        message = order[0]
        if not isinstance(message, Load):
            models[message.model].put(order)
        elif environment.multi_model:
            # Each in a thread of its own, in which it is loaded too: none waits for another.
            own = models[message.model] = QueueInbox()
            threading.Thread(target=serve_apart, args=(message, own), daemon=True).start()
        else:
            # The container's only model has the main thread: nothing between it and the socket.
            Serving(adapter, inbox, outlet).run(message)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
