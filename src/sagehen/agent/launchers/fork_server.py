"""A program that forks containers of the model server, with their framework imported.

    python -m sagehen.agent.launchers.fork_server AGENT_PID SOCKET_FD ADAPTER

    agent ─┬─ fork server ── x       x ends as soon as it has forked the container
           └─ container              which so becomes the agent's child, as it adopts orphans

The server imports, says so, and then waits for requests. It has one thread, and reads nothing of
a container: a child that it forked later would have that in its memory. So a request is one byte,
with a file that only the new process reads:

    SOCKET_FD, a SOCK_SEQPACKET   to the agent: `Ready` or `StartRefused` as JSON, once
                                  from the agent: a byte with three descriptors: the file of a
                                  `ForkRequest`, REPORT_FD of `become_container`, and the log

The container's process takes the steps of `become_container`. What exec would have done besides, it
does itself: descriptors, capabilities, signals, and all that `modelserver.forked` renews.
"""

import contextlib
import ctypes
import os
import signal
import socket
import sys
from typing import NoReturn

import msgspec

from sagehen.agent.launchers import become_container
from sagehen.agent.launchers.fork_messages import ForkRequest, Ready, StartRefused
from sagehen.base.processes import die_with_parent
from sagehen.containers.modelserver import forked

__all__: list[str] = []

_OOM_SCORE = 500
"""as of containers: rather than the agent, which starts a new one"""
_DESCRIPTORS = 3
_SERVER = "sagehen.containers.modelserver"
_FAILED = 127
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_CAPABILITIES_VERSION = 0x20080522
_LIBC = ctypes.CDLL(None, use_errno=True)


def main(agent_pid: int, descriptor: int, adapter: str) -> None:
    die_with_parent(agent_pid)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write(str(_OOM_SCORE))
    agent = socket.socket(fileno=descriptor)
    del sys.path[0]  # the folder in which this was started
    search = list(sys.path)
    sys.path.insert(0, "")
    forked.prepare(adapter)
    if (reason := forked.why_unforkable([0, 1, 2, descriptor])) is not None:
        agent.send(msgspec.json.encode(StartRefused(reason=reason)))
        return
    agent.send(msgspec.json.encode(Ready(search=search)))
    while True:
        word, descriptors, _, _ = socket.recv_fds(agent, 1, _DESCRIPTORS)
        if not word:
            return  # the agent has closed its end
        _fork_orphan(agent, descriptors, agent_pid)
        for each in descriptors:
            os.close(each)


def _fork_orphan(agent: socket.socket, descriptors: list[int], agent_pid: int) -> None:
    """Errors are the new process's: the agent sees that its report ends."""
    with contextlib.suppress(OSError):
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            return
        with contextlib.suppress(OSError):
            if os.fork() == 0:
                _be_container(agent, descriptors, agent_pid)
        os._exit(0)


def _be_container(agent: socket.socket, descriptors: list[int], agent_pid: int) -> NoReturn:
    message, report, output = descriptors
    try:
        proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        _wait_for_adoption(agent_pid, proc)
        os.write(report, f"forked {os.getpid()}\n".encode())
        with open(message, "rb", closefd=False) as file:
            request = msgspec.json.decode(file.read(), type=ForkRequest)
        agent.close()
        _leave_server(request, report, output)
        become_container.become(
            agent_pid,
            report,
            become_container.read_options(request.options),
            lambda of: _fork_main(agent_pid, of),
            lambda confined: _run(request, report),
        )
    except BaseException as error:
        number = error.errno if isinstance(error, OSError) else None
        with contextlib.suppress(OSError):
            os.write(report, f"failed {number or 5} fork\n".encode())
    finally:
        os._exit(_FAILED)


def _wait_for_adoption(agent_pid: int, proc: int) -> None:
    """Returns when this process's parent has ended, so that the agent is its parent."""
    wanted = {signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    # The kernel sends it when it has given this process its new parent.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)
    if become_container.parent_of_self(proc) != agent_pid:
        signal.sigwait(wanted)
    _LIBC.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)
    signal.sigtimedwait(wanted, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, wanted)


def _fork_main(agent_pid: int, proc: int) -> int:
    """Forks a process that outlives this one; returns 0 in it."""
    main = os.fork()
    if main == 0:
        _wait_for_adoption(agent_pid, proc)
    return main


def _leave_server(request: ForkRequest, report: int, output: int) -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    _close_all_but(report)
    if request.umask >= 0:
        os.umask(request.umask)
    os.chdir(request.folder)


def _close_all_but(kept: int) -> None:
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def _run(request: ForkRequest, report: int) -> NoReturn:
    # The machine's /proc is among them.
    _close_all_but(report)
    _keep_capabilities()
    # A change of credentials resets it; without it /proc/self belongs to root.
    _LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    variables = dict(request.variables)
    forked.renew(variables, [os.getcwd(), *request.search])
    os.close(report)
    forked.run(_SERVER)


def _keep_capabilities() -> None:
    """Like exec, which leaves those of the bounding set to root, and none to others."""
    kept = 0
    if os.geteuid() == 0:
        with open("/proc/self/status") as status:
            sets = dict(line.split(":", 1) for line in status if line.startswith("Cap"))
        kept = int(sets["CapPrm"], 16) & int(sets["CapBnd"], 16)
    halves = (kept & 0xFFFFFFFF, kept >> 32)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    # Of each half: effective, permitted, inheritable.
    data = (ctypes.c_uint32 * 6)(*(word for half in halves for word in (half, half, 0)))
    if _LIBC.capset(header, data) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
