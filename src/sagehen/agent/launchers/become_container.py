"""The first program of a container's process: ties its life to its agent's, then becomes it.

    python -ISs become_container.py AGENT_PID REPORT_FD CGROUP_PROCS BASE COMMAND [ARGUMENT …]

A program of its own, and not a function between fork and exec: there, after a fork of a process
with threads, any Python at all may wait for ever for a lock that nobody holds any more. It imports
nothing of the platform, so that it takes some 10 ms.

CGROUP_PROCS is the file to join a cgroup by, or `-`. BASE is the folder to be seen as /opt/ml, or
`-`. Where one of these or the command does not work, the error's number goes to REPORT_FD, and
what did not work, if it was not the command; a success closes it.

For BASE the process gets a namespace of mounts of its own: who is not root, or not entirely, gets
one of users too, in which there is only itself. Nothing is written on the machine: where there is
no /opt/ml to mount on, there is another /opt for the container, with all that the machine's has.
"""

import contextlib
import ctypes
import os
import resource
import signal
import stat
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_OOM_SCORE = 500
"""Out of 1000: where the machine has no memory left, the kernel ends containers first."""
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 1, 0x20, 0x1000, 0x4000, 0x80000
_OPT, _OPT_ML = "/opt", "/opt/ml"

_libc = ctypes.CDLL(None, use_errno=True)


def _main(agent_pid: int, report: int, procs: str, base: str, command: list[str]) -> None:
    os.set_inheritable(report, False)
    doing = b""
    try:
        doing = b" cgroup"
        if procs != "-":
            _write(procs, str(os.getpid()))
        doing = b" mount"
        if base != "-":
            _mount_base(base)
        doing = b""
        # Not before: the kernel takes it back from who changes what it may do.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != agent_pid:
            return  # The agent has died already, and nobody would tell us.
        _prepare()
        os.execvp(command[0], command)
    except OSError as error:
        os.write(report, str(error.errno).encode() + doing)


def _prepare() -> None:
    # As the first process of a container in SageMaker, it gets what its descendants leave behind.
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        _write("/proc/self/oom_score_adj", str(_OOM_SCORE))
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # What Python ignores, or who started the server (nohup), would stay so in the next program.
        signal.signal(number, signal.SIG_DFL)


def _mount_base(base: str) -> None:
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(_CLONE_NEWNS) != 0:
        _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
        # Files stay this user's; all others' are nobody's.
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    # What the machine mounts, and unmounts, from now on is so here as well, and never vice versa.
    _mount(None, "/", _MS_REC | _MS_SLAVE)
    # By its descriptor: it may lie in /opt.
    folder = os.open(base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    working = os.getcwd()
    if not os.path.isdir(_OPT_ML):
        _replace_opt()
    _mount(f"/proc/self/fd/{folder}", _OPT_ML, _MS_BIND | _MS_REC)
    os.close(folder)
    inside = os.path.commonpath((working, base)) == base
    os.chdir(os.path.join(_OPT_ML, os.path.relpath(working, base)) if inside else working)


def _replace_opt() -> None:
    """By a folder in memory, which has what was there, and an `ml`."""
    opt = os.open(_OPT, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _mount("sagehen", _OPT, 0, "tmpfs", "mode=755,size=1m")
    for name in os.listdir(opt):
        old, new = f"/proc/self/fd/{opt}/{name}", f"{_OPT}/{name}"
        mode = os.lstat(old).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(old), new)
            continue
        if stat.S_ISDIR(mode):
            os.mkdir(new)
        else:
            os.close(os.open(new, os.O_CREAT | os.O_WRONLY))
        _mount(old, new, _MS_BIND | _MS_REC)
    os.close(opt)
    with contextlib.suppress(FileExistsError):
        os.mkdir(_OPT_ML)
    # What were written there would be lost.
    _mount("sagehen", _OPT, _MS_REMOUNT | _MS_RDONLY, "tmpfs")


def _mount(
    source: str | None, target: str, flags: int, kind: str | None = None, options: str | None = None
) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    data = None if options is None else options.encode()
    _check(_libc.mount(*texts, ctypes.c_ulong(flags), data))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:])
    sys.exit(127)
