"""The first program of a container's process: ties its life to its agent's, then becomes it.

    python -ISs become_container.py AGENT_PID REPORT_FD COMMAND [ARGUMENT …]

A program of its own, and not a function between fork and exec: there, after a fork of a process
with threads, any Python at all may wait for ever for a lock that nobody holds any more. It imports
nothing of the platform, so that it takes some 10 ms.

Where the command cannot be run, the error's number goes to REPORT_FD, which a success closes.
"""

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _main(agent_pid: int, report: int, command: list[str]) -> None:
    os.set_inheritable(report, False)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != agent_pid:
        return  # The agent has died already, and nobody would tell us.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # What Python ignores, or who started the server (nohup), would stay so in the next program.
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(report, str(error.errno).encode())


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    sys.exit(127)
