"""The first program in a container's process: ties its life to the agent's, then execs the command.

    python -ISs become_container.py AGENT_PID REPORT_FD CGROUP_PROCS BASE HOSTS HIDDEN
        NETWORK COMMAND [ARGUMENT …]

It is a program and not a function between fork and exec: after a fork of a process with threads,
Python code may wait forever for a lock that no thread holds any more. It imports nothing of the
platform, and of the standard library only built-in or C modules: `os`, `signal`, `ctypes` and
`contextlib` would double its start time.

CGROUP_PROCS is the `cgroup.procs` file to join, BASE the folder to mount at /opt/ml, HOSTS the file
to mount at /etc/hosts, HIDDEN the paths to hide, as FOLDER//NAME/NAME…. Each may be `-`, and so
may NETWORK; HOSTS and HIDDEN need BASE. On failure the errno is written to REPORT_FD, with what
failed unless that was the command; success closes it.

NETWORK asks for a network of its own: `none` for the loopback device only, `of:PID` for that of
another container if that still runs, CONTROL_FD/SERVER_PORT/NAMESERVER/NAMESERVER… for one with a
relay, see `container_network`.

With BASE the process gets its own mount namespace, with NETWORK its own network namespace, and
with either, without full root, also a user namespace with itself alone. Nothing is written on the
machine: if it has no /opt/ml to mount on, the container gets another /opt with all that the
machine's has.
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
"""of 1000: out of memory, the kernel ends containers first"""
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 1, 0x20, 0x1000, 0x4000, 0x80000
_OPT, _OPT_ML, _HOSTS = "/opt", "/opt/ml", "/etc/hosts"
_NONE, _ALONE, _OF = "-", "none", "of:"
_OWN_NETWORK = "/proc/self/ns/net"
_DEFAULT_PATH = b"/bin:/usr/bin"


class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "i"


class _UnsignedLong(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "L"


class _Function(_ctypes.CFuncPtr):
    """A C function, as of `ctypes.CDLL(None, use_errno=True)`."""

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Int


_LIBC = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
_PRCTL, _UNSHARE, _SETNS, _MOUNT = (
    _Function(_ctypes.dlsym(_LIBC, name)) for name in ("prctl", "unshare", "setns", "mount")
)


def _main(agent_pid: int, report: int, options: list[str], command: list[str]) -> None:
    procs, base, hosts, hidden, network = options
    posix.set_inheritable(report, False)
    doing = b""
    try:
        doing = b" cgroup"
        if procs != _NONE:
            _write(procs, str(posix.getpid()))
        doing = b" mount" if network == _NONE else b" network"
        _enter_namespaces(mounts=base != _NONE, network=network)
        doing = b" mount"
        if base != _NONE:
            _mount_all(base, hosts, hidden)
        doing = b""
        # Only now: a change of credentials resets the signal.
        _PRCTL(_PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
        if posix.getppid() != agent_pid:
            return  # the agent has died: no signal would come
        _prepare()
        _execute(command)
    except OSError as error:
        posix.write(report, str(error.errno).encode() + doing)


def _prepare() -> None:
    # Like PID 1 of a SageMaker container, adopts its descendants' orphans.
    _PRCTL(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:  # noqa: SIM105
        _write("/proc/self/oom_score_adj", str(_OOM_SCORE))
    except OSError:
        pass
    for number in _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}:
        # Signals ignored by Python or the server's parent (nohup) would stay ignored.
        _signal.signal(number, _signal.SIG_DFL)


def _execute(command: list[str]) -> None:
    """Like `os.execvp`; keeps the error of a file that cannot be run."""
    program = _encode(command[0])
    if b"/" in program:
        posix.execv(program, command)
    denied: OSError | None = None
    missing: OSError | None = None
    for folder in posix.environ.get(b"PATH", _DEFAULT_PATH).split(b":"):
        try:
            posix.execv(folder + b"/" + program if folder else program, command)
        except (FileNotFoundError, NotADirectoryError) as error:
            missing = error
        except OSError as error:
            denied = denied or error
    raise denied or missing or FileNotFoundError


def _mount_all(base: str, hosts: str, hidden: str) -> None:
    # Mounts propagate from the machine, never back.
    _mount(None, "/", _MS_REC | _MS_SLAVE)
    # By descriptor: the folder may lie in /opt.
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


def _leave_namespaces(flags: int) -> None:
    user, group = posix.geteuid(), posix.getegid()
    if _UNSHARE(flags) != 0:
        _check(_UNSHARE(_CLONE_NEWUSER | flags))
        # Other users appear as nobody.
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")


def _enter_namespaces(*, mounts: bool, network: str) -> None:
    if network.startswith(_OF) and not _join_network(int(network.removeprefix(_OF))):
        network = _ALONE
    has_own = network != _NONE and not network.startswith(_OF)
    flags = (_CLONE_NEWNS if mounts else 0) | (_CLONE_NEWNET if has_own else 0)
    if flags:
        _leave_namespaces(flags)
    if has_own:
        _set_up_network(network)


def _join_network(pid: int) -> bool:
    """Returns False if the other container has ended."""
    own = posix.readlink(_OWN_NETWORK)
    try:
        container = posix.pidfd_open(pid)
        if _SETNS(container, _CLONE_NEWNET) != 0:
            # Its user namespace, in which this process then has the rights to mount.
            _check(_SETNS(container, _CLONE_NEWUSER | _CLONE_NEWNET))
    except ProcessLookupError:
        return False
    posix.close(container)
    # Another process may have the number by now.
    return bool(posix.readlink(_OWN_NETWORK) != own)


def _set_up_network(network: str) -> None:
    # Not before: most containers do without its imports.
    sys.path.insert(0, sys.argv[0].rpartition("/")[0])
    import container_network  # type: ignore[import-not-found]

    container_network.bring_up_loopback()
    if network != _ALONE:
        control, server_port, *nameservers = network.split("/")
        listeners = container_network.set_up(int(server_port), nameservers)
        container_network.send_listeners(int(control), listeners)


def _replace(folder: str, mode: str, without: list[str] | None = None, more: str = "") -> None:
    """Covers a folder by one in memory, `without` some entries and with the folder `more`."""
    replaced = posix.open(folder, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
    _mount("sagehen", folder, 0, "tmpfs", f"{mode},size=1m")
    for name in posix.listdir(replaced):
        if name not in (without or []):
            try:  # noqa: SIM105
                _show(f"/proc/self/fd/{replaced}/{name}", f"{folder}/{name}")
            except FileNotFoundError:
                pass
    posix.close(replaced)
    if more:
        posix.mkdir(f"{folder}/{more}")
    # Writes would be lost.
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
    """Like `os.fsencode`."""
    return text.encode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


def _write(path: str, text: str) -> None:
    descriptor = posix.open(path, posix.O_WRONLY)
    try:
        posix.write(descriptor, text.encode())
    finally:
        posix.close(descriptor)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:8], sys.argv[8:])
    sys.exit(127)
