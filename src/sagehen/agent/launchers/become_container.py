"""The first program of a container's process: ties its life to its agent's, then becomes it.

    python -ISs become_container.py AGENT_PID REPORT_FD CGROUP_PROCS BASE HOSTS HIDDEN
        COMMAND [ARGUMENT …]

A program of its own, and not a function between fork and exec: there, after a fork of a process
with threads, any Python at all may wait for ever for a lock that nobody holds any more. It imports
nothing of the platform, and of Python's library only what is built in or written in C: with `os`,
`signal`, `ctypes` and `contextlib`, which are made of these, it would take twice as long to start.

CGROUP_PROCS is the file to join a cgroup by, or `-`. BASE is the folder to be seen as /opt/ml, or
`-`. HOSTS is the file to be seen as /etc/hosts, and HIDDEN what is not to be seen, as
FOLDER//NAME/NAME…; both `-` where there is none, and of no effect without BASE. Where one of these
or the command does not work, the error's number goes to REPORT_FD, and what did not work, if it was
not the command; a success closes it.

For BASE the process gets a namespace of mounts of its own: who is not root, or not entirely, gets
one of users too, in which there is only itself. Nothing is written on the machine: where there is
no /opt/ml to mount on, there is another /opt for the container, with all that the machine's has.
"""

import _ctypes
import _signal  # type: ignore[import-not-found]
import _stat
import posix
import resource
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_OOM_SCORE = 500
"""Out of 1000: where the machine has no memory left, the kernel ends containers first."""
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 1, 0x20, 0x1000, 0x4000, 0x80000
_OPT, _OPT_ML, _HOSTS = "/opt", "/opt/ml", "/etc/hosts"
_NONE = "-"
_DEFAULT_PATH = b"/bin:/usr/bin"


class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "i"


class _UnsignedLong(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "L"


class _Function(_ctypes.CFuncPtr):
    """One of the C library's, as `ctypes.CDLL(None, use_errno=True)` has them."""

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Int


_LIBC = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
_PRCTL, _UNSHARE, _MOUNT = (
    _Function(_ctypes.dlsym(_LIBC, name)) for name in ("prctl", "unshare", "mount")
)


def _main(agent_pid: int, report: int, told: list[str], command: list[str]) -> None:
    procs, base, hosts, hidden = told
    posix.set_inheritable(report, False)
    doing = b""
    try:
        doing = b" cgroup"
        if procs != _NONE:
            _write(procs, str(posix.getpid()))
        doing = b" mount"
        if base != _NONE:
            _mount_all(base, hosts, hidden)
        doing = b""
        # Not before: the kernel takes it back from who changes what it may do.
        _PRCTL(_PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
        if posix.getppid() != agent_pid:
            return  # The agent has died already, and nobody would tell us.
        _prepare()
        _execute(command)
    except OSError as error:
        posix.write(report, str(error.errno).encode() + doing)


def _prepare() -> None:
    # As the first process of a container in SageMaker, it gets what its descendants leave behind.
    _PRCTL(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:  # noqa: SIM105
        _write("/proc/self/oom_score_adj", str(_OOM_SCORE))
    except OSError:
        pass
    for number in _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}:
        # What Python ignores, or who started the server (nohup), would stay so in the next program.
        _signal.signal(number, _signal.SIG_DFL)


def _execute(command: list[str]) -> None:
    """As `os.execvp`: where a file cannot be run, the next of PATH is tried, and its error kept."""
    program = _encode(command[0])
    if b"/" in program:
        posix.execv(program, command)
    kept: OSError | None = None
    missing: OSError | None = None
    for folder in posix.environ.get(b"PATH", _DEFAULT_PATH).split(b":"):
        try:
            posix.execv(folder + b"/" + program if folder else program, command)
        except (FileNotFoundError, NotADirectoryError) as error:
            missing = error
        except OSError as error:
            kept = kept or error
    raise kept or missing or FileNotFoundError


def _mount_all(base: str, hosts: str, hidden: str) -> None:
    _leave_namespace()
    # By its descriptor: it may lie in /opt.
    folder = posix.open(base, posix.O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC)
    working = posix.getcwd()
    if hosts != _NONE and _exists(_HOSTS):
        _mount(hosts, _HOSTS, _MS_BIND)
    if hidden != _NONE:
        above, _, names = hidden.partition("//")
        _replace(above, "mode=700", without=names.split("/"))
    if not _is_folder(_OPT_ML):
        _replace(_OPT, "mode=755", more="ml")
    _mount(f"/proc/self/fd/{folder}", _OPT_ML, _MS_BIND | _MS_REC)
    posix.close(folder)
    inside = f"{working}/".startswith(f"{base}/")
    posix.chdir(_OPT_ML + working[len(base) :] if inside else working)


def _leave_namespace() -> None:
    """The machine's, of mounts."""
    user, group = posix.geteuid(), posix.getegid()
    if _UNSHARE(_CLONE_NEWNS) != 0:
        _check(_UNSHARE(_CLONE_NEWUSER | _CLONE_NEWNS))
        # Files stay this user's; all others' are nobody's.
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    # What the machine mounts, and unmounts, from now on is so here as well, and never vice versa.
    _mount(None, "/", _MS_REC | _MS_SLAVE)


def _replace(folder: str, mode: str, without: list[str] | None = None, more: str = "") -> None:
    """By a folder in memory, which has what was there but for some, and one folder more."""
    replaced = posix.open(folder, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
    _mount("sagehen", folder, 0, "tmpfs", f"{mode},size=1m")
    for name in posix.listdir(replaced):
        if name not in (without or []):
            try:  # noqa: SIM105
                _show(f"/proc/self/fd/{replaced}/{name}", f"{folder}/{name}")
            except FileNotFoundError:
                pass  # It was removed meanwhile.
    posix.close(replaced)
    if more:
        posix.mkdir(f"{folder}/{more}")
    # What were written there would be lost.
    _mount("sagehen", folder, _MS_REMOUNT | _MS_RDONLY, "tmpfs")


def _show(old: str, new: str) -> None:
    mode = posix.lstat(old).st_mode
    if _stat.S_ISLNK(mode):
        posix.symlink(posix.readlink(old), new)
        return
    if _stat.S_ISDIR(mode):
        posix.mkdir(new)
    else:
        posix.close(posix.open(new, posix.O_CREAT | posix.O_WRONLY))
    _mount(old, new, _MS_BIND | _MS_REC)


def _exists(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def _is_folder(path: str) -> bool:
    try:
        return _stat.S_ISDIR(posix.stat(path).st_mode)
    except OSError:
        return False


def _mount(
    source: str | None, target: str, flags: int, kind: str | None = None, options: str | None = None
) -> None:
    texts = [None if text is None else _encode(text) for text in (source, target, kind)]
    data = None if options is None else options.encode()
    _check(_MOUNT(*texts, _UnsignedLong(flags), data))


def _check(result: object) -> None:
    if result != 0:
        number = _ctypes.get_errno()
        raise OSError(number, posix.strerror(number))


def _encode(text: str) -> bytes:
    """As `os.fsencode`."""
    return text.encode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


def _write(path: str, text: str) -> None:
    descriptor = posix.open(path, posix.O_WRONLY)
    try:
        posix.write(descriptor, text.encode())
    finally:
        posix.close(descriptor)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:7], sys.argv[7:])
    sys.exit(127)
