"""Worker processes that a forked model server forks before it has threads.

Their framework is imported already. One that dies is replaced by a new process, as ever.
"""

import logging
import os
import socket
import sys
from collections.abc import Sequence
from uuid import uuid4

from sagehen.base.errors import SagehenError
from sagehen.containers.leftovers import MARK
from sagehen.containers.modelserver import forked
from sagehen.containers.modelserver.adapters import make_adapter
from sagehen.containers.modelserver.adapters.script.script import find_requirements, find_script
from sagehen.containers.modelserver.environment import THREAD_VARIABLES, Environment
from sagehen.containers.modelserver.gpus import visible_gpus
from sagehen.containers.modelserver.workers.process import (
    WORKER_MODULE,
    StartedWorker,
    worker_variables,
)

__all__ = ["ForkedProcess", "fork_workers", "why_not_forked"]

log = logging.getLogger(__name__)


class ForkedProcess:
    """A child of this process, with the methods of `subprocess.Popen` that workers need."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        """Does nothing when the process was waited for: another may have its number by then."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def wait(self) -> int:
        if self.returncode is None:
            try:
                _, status = os.waitpid(self.pid, 0)
                self.returncode = os.waitstatus_to_exitcode(status)
            except ChildProcessError:
                self.returncode = 0  # reaped elsewhere, as `subprocess` has it
        return self.returncode


def fork_workers(environment: Environment) -> list[StartedWorker]:
    """Forks the workers of a container whose model has a script; none of any other."""
    if why_not_forked(environment) is not None:
        return []
    variables = worker_variables(environment)
    workers: list[StartedWorker] = []
    try:
        for _ in range(environment.workers):
            workers.append(_fork({**variables, MARK: uuid4().hex}, workers))
    except OSError as error:
        log.warning("Worker processes cannot be forked, and are started anew: %s", error)
        for worker in workers:
            worker.kill()
        return []
    return workers


def why_not_forked(environment: Environment) -> str | None:
    """Returns why the container's workers start in the ordinary way, if there are any."""
    if not forked.is_forked():
        return "the server was not forked"
    if environment.multi_model:
        return "the models are not known yet"
    if visible_gpus(environment.variables):
        return "CUDA must be loaded for one GPU"
    if not forked.loaded_with(worker_variables(environment), THREAD_VARIABLES):
        return "workers have another number of threads"
    folder = environment.model_dir
    try:
        script = find_script(folder, environment)
        if script is None or not make_adapter(environment).needs_worker(folder):
            return "there is no script"
    except SagehenError as error:
        return str(error)  # the server reports it
    if find_requirements(folder, environment) is not None:
        return "there is a requirements.txt"
    if (name := forked.shadowed_module([str(script.folder)])) is not None:
        return f"the script's folder has a module {name} of its own"
    return None


def _fork(variables: dict[str, str], others: Sequence[StartedWorker]) -> StartedWorker:
    parent = os.getpid()
    own_end, worker_end = socket.socketpair()
    pid = os.fork()
    if pid:
        worker_end.close()
        return StartedWorker(ForkedProcess(pid), own_end, variables[MARK])
    try:
        own_end.close()
        for other in others:
            other.end.close()
        forked.renew(variables)
        forked.run(WORKER_MODULE, str(worker_end.detach()), str(parent))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)
