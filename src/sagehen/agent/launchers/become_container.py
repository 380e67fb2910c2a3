"""The first program of a container's process: ties its life to its agent's, then becomes it.

    python -ISs become_container.py AGENT_PID REPORT_FD CGROUP_PROCS COMMAND [ARGUMENT …]

A program of its own, and not a function between fork and exec: there, after a fork of a process
with threads, any Python at all may wait for ever for a lock that nobody holds any more. It imports
nothing of the platform, so that it takes some 10 ms.

CGROUP_PROCS is the file to join a cgroup by, or `-`. Where that or the command does not work, the
error's number goes to REPORT_FD, which a success closes.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_OOM_SCORE = 500
"""Out of 1000: where the machine has no memory left, the kernel ends containers first."""


def _main(agent_pid: int, report: int, procs: str, command: list[str]) -> None:
    os.set_inheritable(report, False)
    process = ctypes.CDLL(None).prctl
    process(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != agent_pid:
        return  # The agent has died already, and nobody would tell us.
    # As the first process of a container in SageMaker, it gets what its descendants leave behind.
    process(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        _write("/proc/self/oom_score_adj", str(_OOM_SCORE))
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # What Python ignores, or who started the server (nohup), would stay so in the next program.
        signal.signal(number, signal.SIG_DFL)
    try:
        if procs != "-":
            _write(procs, str(os.getpid()))
        os.execvp(command[0], command)
    except OSError as error:
        os.write(report, str(error.errno).encode())


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
    sys.exit(127)
