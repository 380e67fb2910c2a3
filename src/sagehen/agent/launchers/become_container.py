"""The first program in a container's process: ties its life to the agent's, then execs the command.

    python -ISs become_container.py AGENT_PID REPORT_FD [OPTION=VALUE …] -- COMMAND [ARGUMENT …]

It is a program and not a function between fork and exec: after a fork of a process with threads,
Python code may wait forever for a lock that no thread holds any more. It imports nothing of the
platform but `container_files` and `container_network`, and of the standard library only built-in or
C modules: `os`, `signal`, `ctypes` and `contextlib` would double its start time.

    cgroup=FILE                 the `cgroup.procs` to join
    base=FOLDER                 seen at /opt/ml; the options below need it
    hosts=FILE                  seen at /etc/hosts
    cover=FOLDER//NAME/NAME…    a folder without these entries, read-only
    overlay=FOLDER              a folder whose changes stay in the container
    private=FOLDER//SOURCE//MODE  the container's own SOURCE, made if missing, seen at FOLDER;
                                no MODE: with the modes and empty folders of FOLDER
    memory=FOLDER//BYTES        a folder in memory
    empty=FOLDER                an empty folder
    named=PATH                  visible, read-only, though it lies in one of these folders
    link=PATH//TARGET           a link in one of these folders
    shown=PATH                  visible though it lies in one of these folders
    processes=own               pid and IPC namespaces, with their own /proc
    network=none                a network namespace with the loopback device only; needs no base
    network=of:PID              that of another container, if that still runs
    network=out/PORT/ADDRESS/…  one with a way out, by a relay: `container_network`
    handoff=FD                  a listening Unix socket by which port 8080 is reached: `hand_over`

All but the first three, `processes`, `network` and `handoff` may be repeated. A new kind of
namespace is a flag in `_namespaces`, its set-up a step of `become` before `processes`: there the
process has all rights in its namespaces.

REPORT_FD is a pipe, closed when the command runs. Lines in it: `helper PID NAME` for each program
that serves the network, `started INIT MAIN` if the container is another process than this one, and
`failed ERRNO STEP`, where the step is empty if it was the command.

With BASE the process gets its own mount namespace, and for any namespace without full root also a
user namespace with itself alone. Nothing is written on the machine: if it has no /opt/ml to mount
on, the container gets another /opt with all that the machine's has.

A pid namespace ends with its first process, which cannot be the command: the kernel would keep most
signals from it. So this program starts two processes, both children of the agent, and ends:

    agent ─┬─ init     pid 1: does nothing; the agent kills it, and so all others, at the end
           └─ main     pid 2: becomes the command

`fork_server` takes the same steps, by `become`, in a process that it has forked.

The helpers of the network are children of the agent too, forked from this program: another start of
Python takes as long as all the rest. The relay stays in the machine's namespaces, the one that
hands over connections is in those of the network only.
"""

import _signal  # type: ignore[import-not-found]
import posix
import resource
import sys

if __name__ == "__main__":
    # Isolated from its folder, which is also that of the compiled program.
    sys.path.insert(0, sys.argv[0].rpartition("/")[0].removesuffix("/__pycache__"))
    import container_files as files  # type: ignore[import-not-found]
else:
    from sagehen.agent.launchers import container_files as files

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` would take as long to import as all the rest
    from collections.abc import Callable, Iterator
    from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME = 1, 4, 15
_PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER = 24, 36
_OOM_SCORE = 500
"""of 1000: out of memory, the kernel ends containers first"""
_CLONE_PARENT, _CLONE_NEWIPC, _CLONE_NEWPID = 0x8000, 0x08000000, 0x20000000
_CLONE_NEWNET = 0x40000000
_ALONE, _OF = "none", "of:"
_OWN_NETWORK = "/proc/self/ns/net"
_CLONE_CALLS = {"x86_64": 56, "aarch64": 220, "riscv64": 220, "ppc64le": 120, "armv7l": 120}
_MAX_DESCRIPTORS = 2**20
"""the kernel's own bound of the limit, unless changed"""
_PARENT, _ARGUMENTS_START, _ARGUMENTS_END = 1, 45, 46
"""indices in /proc/PID/stat, after the name"""
_MOUNT_MASK = 0o022
"""for folders made to mount on"""
_DEFAULT_PATH = b"/bin:/usr/bin"
_SLEEPERS = ("/bin/sleep", "/usr/bin/sleep")
_FOREVER = "2147483647"

_LAST_CAPABILITY = 63
_KEPT_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 29, 31)
"""Docker's, but for CAP_MKNOD, by which root reads raw disks; without CAP_SYS_ADMIN, which could
unmount what hides the machine"""


def become(
    agent_pid: int,
    report: int,
    options: dict[str, list[str]],
    fork_main: "Callable[[int], int]",
    run: "Callable[[bool], NoReturn]",
) -> None:
    """Returns if a step, or `run`, has failed, which it has reported.

    Args:
        fork_main: forks the main process of new namespaces as a child of the agent; is given the
            machine's /proc, and returns 0 in the child.
        run: becomes the command; is told whether the container must not see the machine.
    """
    posix.set_inheritable(report, False)
    # Before another one is mounted there, perhaps by the sibling.
    proc = posix.open("/proc", posix.O_PATH | posix.O_CLOEXEC)
    step = "cgroup"
    try:
        for procs in options.get("cgroup", ()):
            files.write(procs, str(posix.getpid()))
        step = "network"
        _make_network(_join_network(*options.get("network", [None])), agent_pid, proc, report)
        for listener in map(int, options.get("handoff", ())):
            _start_helper("hand_over", listener, agent_pid, proc, report)
            posix.close(listener)
        step = "mount"
        # Not before the helpers are forked: its first child is a process namespace's first process.
        files.leave_namespaces(_namespaces(options))
        if "base" in options:
            for step in _mount(options):  # noqa: B007 - the step that fails is reported
                pass
        step = "processes"
        if "processes" in options:
            _enter_processes(agent_pid, proc, report, fork_main)
        # Only now: a change of credentials resets the signal.
        _die_with(agent_pid, proc)
        if "processes" in options:
            files.mount_proc()
        if "cover" in options:
            step = "files"
            files.protect_kernel()
        step = ""
        _prepare(confined="cover" in options)
        run("cover" in options)
    except OSError as error:
        posix.write(report, f"failed {error.errno} {step}\n".encode())


def _mount(options: dict[str, list[str]]) -> "Iterator[str]":
    """Yields the name of each step before it is taken."""
    mask = posix.umask(_MOUNT_MASK)
    paths = files.Paths(
        options.get("shown", []),
        options.get("private", []),
        options["base"][0],
        options.get("named", []),
        options.get("link", []),
    )
    yield "files"
    files.empty(options.get("empty", []))
    paths.cover(options.get("cover", []))
    yield "overlay"
    files.overlay(options.get("overlay", []))
    yield "files"
    if "cover" in options:
        files.hide_disks()
    paths.mount_private()
    files.mount_memory(options.get("memory", []))
    paths.show()
    yield "mount"
    paths.mount_opt_ml(*options.get("hosts", [None]))
    posix.umask(mask)


def _namespaces(options: dict[str, list[str]]) -> int:
    flags: int = files.CLONE_NEWNS if "base" in options else 0
    return flags | (_CLONE_NEWPID | _CLONE_NEWIPC if "processes" in options else 0)


def _join_network(network: str | None) -> str | None:
    """Returns the option for a new network; None if the process needs none."""
    if network is None or not network.startswith(_OF):
        return network
    own = posix.readlink(_OWN_NETWORK)
    try:
        container = posix.pidfd_open(int(network.removeprefix(_OF)))
        if files.SETNS(container, _CLONE_NEWNET) != 0:
            # Its user namespace, in which this process then has the rights to mount.
            files.check(files.SETNS(container, files.CLONE_NEWUSER | _CLONE_NEWNET))
    except ProcessLookupError:
        return _ALONE
    posix.close(container)
    # Another process may have the number by now.
    return _ALONE if posix.readlink(_OWN_NETWORK) == own else None


def _make_network(network: str | None, agent_pid: int, proc: int, report: int) -> None:
    if network is None:
        return
    # Not before: most containers do without its imports.
    import container_network  # type: ignore[import-not-found]

    if network == _ALONE:
        files.leave_namespaces(_CLONE_NEWNET)
        container_network.bring_up_loopback()
        return
    relays, carrier = container_network.carriers()
    _start_helper("relay", relays.fileno(), agent_pid, proc, report)
    relays.close()
    _, server_port, *nameservers = network.split("/")
    files.leave_namespaces(_CLONE_NEWNET)
    container_network.bring_up_loopback()
    listeners = container_network.set_up(int(server_port), nameservers)
    container_network.send_listeners(carrier, listeners)


def _start_helper(name: str, descriptor: int, agent_pid: int, proc: int, report: int) -> None:
    """Forks a process that serves `descriptor`."""
    helper = _clone_sibling()
    if helper:
        posix.write(report, f"helper {helper} {name}\n".encode())
        return
    try:
        _die_with(agent_pid, proc)
        _set_title(f"sagehen {name}", proc)
        # The container must not trace a process that has rights in its namespaces.
        files.PRCTL(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        files.PRCTL(_PR_SET_NAME, name.encode(), 0, 0, 0)
        posix.setsid()
        posix.chdir("/")
        _leave_outputs()
        posix.closerange(3, descriptor)
        posix.closerange(descriptor + 1, _MAX_DESCRIPTORS)
        for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
            _signal.signal(number, _signal.SIG_IGN)  # for the agent, which ends it
        _serve(name, descriptor)
        posix._exit(0)
    finally:
        posix._exit(1)


def _serve(name: str, descriptor: int) -> None:
    if name == "relay":
        import relay  # type: ignore[import-not-found]

        relay.serve(descriptor)
    else:
        import hand_over  # type: ignore[import-not-found]

        hand_over.serve(descriptor)


def _leave_outputs() -> None:
    """Else the container's log would not end before this process."""
    null = posix.open("/dev/null", posix.O_RDWR)
    for descriptor in range(3):
        posix.dup2(null, descriptor)
    posix.close(null)


def _enter_processes(
    agent_pid: int, proc: int, report: int, fork_main: "Callable[[int], int]"
) -> None:
    """Returns in the main process only."""
    init = _clone_sibling()
    if init == 0:
        _be_init(agent_pid, proc)
    try:
        main = fork_main(proc)
    except OSError:
        posix.kill(init, _signal.SIGKILL)
        raise
    if main:
        posix.write(report, f"started {init} {main}\n".encode())
        posix._exit(0)
    posix.setsid()


def _clone_sibling(_: int = 0) -> int:
    """Forks a child of this process's parent; returns 0 in the child."""
    number = _CLONE_CALLS.get(posix.uname().machine)
    if number is None:
        raise OSError(38, "no such system call is known")
    arguments = (number, _CLONE_PARENT | _signal.SIGCHLD, 0, 0, 0, 0)
    pid = int(files.SYSCALL(*map(files.UnsignedLong, arguments)))
    if pid < 0:
        files.check(pid)
    return pid


def _be_init(agent_pid: int, proc: int) -> None:
    try:
        _die_with(agent_pid, proc)
        posix.setsid()
        posix.chdir("/")
        _leave_outputs()
        _reset_signals()
        # Inherited by the next program: the kernel reaps the orphans.
        _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
        for program in _SLEEPERS:
            try:
                posix.execv(program, [program, _FOREVER])
            except OSError:
                continue
        posix.closerange(3, 256)
        while True:
            _signal.pause()
    finally:
        posix._exit(1)


def _die_with(agent_pid: int, proc: int) -> None:
    """`proc` is the machine's /proc, which counts processes as the agent does."""
    files.PRCTL(_PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
    if parent_of_self(proc) != agent_pid:
        posix._exit(127)  # the agent has died: no signal would come


def parent_of_self(proc: int) -> int:
    return int(_read_stat(proc)[_PARENT])


def _read_stat(proc: int) -> list[bytes]:
    """The fields after the name."""
    stat = posix.open("self/stat", posix.O_RDONLY, dir_fd=proc)
    fields = posix.read(stat, 4096).rpartition(b")")[2].split()
    posix.close(stat)
    return fields


def _set_title(title: str, proc: int) -> None:
    """Else this process would be listed with the container's command."""
    fields = _read_stat(proc)
    start, end = int(fields[_ARGUMENTS_START]), int(fields[_ARGUMENTS_END])
    if start:
        words = files.encode(title)[: end - start - 1].ljust(end - start, b"\0")
        files.COPY(files.UnsignedLong(start), words, files.UnsignedLong(end - start))


def _prepare(*, confined: bool) -> None:
    # Like PID 1 of a SageMaker container, adopts its descendants' orphans.
    files.PRCTL(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:  # noqa: SIM105
        files.write("/proc/self/oom_score_adj", str(_OOM_SCORE))
    except OSError:
        pass
    if confined:
        for capability in range(_LAST_CAPABILITY + 1):
            if capability not in _KEPT_CAPABILITIES:
                files.PRCTL(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _reset_signals()


def _reset_signals() -> None:
    for number in _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}:
        # Signals ignored by Python or the server's parent (nohup) would stay ignored.
        _signal.signal(number, _signal.SIG_DFL)


def _execute(command: list[str]) -> "NoReturn":
    """Like `os.execvp`; keeps the error of a file that cannot be run."""
    program = files.encode(command[0])
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


def read_options(words: list[str]) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {}
    for word in words:
        name, _, value = word.partition("=")
        options.setdefault(name, []).append(value)
    return options


if __name__ == "__main__":
    end = sys.argv.index("--")
    become(
        int(sys.argv[1]),
        int(sys.argv[2]),
        read_options(sys.argv[3:end]),
        _clone_sibling,
        lambda _: _execute(sys.argv[end + 1 :]),
    )
    sys.exit(127)
