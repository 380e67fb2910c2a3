"""The files that a container sees: mounts in its own mount namespace, for `become_container`.

It imports built-in modules only, as `become_container` says. In this order:

    empty     a folder is empty (~/.ssh)
    cover     a folder loses entries (the home: keys, state, other containers)
    overlay   a folder keeps changes to itself (/etc)
    disks     are not there for root, nor is the watchdog
    private   a folder of the container's own lies at a path of the machine (/tmp)
    named     paths that would be hidden by the above are put back, read-only
    link      links that would be hidden by the above are made again; as the container follows
              them, they lead to nothing that it does not see
    shown     paths that would be hidden by the above are put back
    opt_ml    the container's folder at /opt/ml
    kernel    its settings are read-only for root (/sys, /proc/sys)

Whatever lies inside a covered folder is opened before the first mount, and mounted by its
descriptor.
"""

import _ctypes
import _stat
import posix
import sys

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 0x20, 0x1000, 0x4000, 0x80000
_MS_NO_PROGRAMS = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
_MOUNT_OPTIONS = {"nosuid": _MS_NOSUID, "nodev": _MS_NODEV, "noexec": _MS_NOEXEC}
_OPT, _OPT_ML, _HOSTS, _STAGE = "/opt", "/opt/ml", "/etc/hosts", "/tmp"
_DEVICES = "/dev"
_DISK_CONTROLS = ("sg", "nvme")
"""character devices that take a disk's commands"""
_WATCHDOG = "watchdog"
"""when it has been opened and closed, the machine restarts"""
_MOUNTS, _SYS = "/proc/self/mounts", "/sys"
_KERNEL_SETTINGS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""what Docker makes read-only"""
_COVER_OPTIONS = "size=1m"
_OVERLAY_BYTES = 64 * 2**20
"""changes to one overlaid folder, in memory"""


class _Int(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "i"


class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "l"


class UnsignedLong(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "L"


class IntFunction(_ctypes.CFuncPtr):
    """A C function, as of `ctypes.CDLL(None, use_errno=True)`."""

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Int


class LongFunction(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Long


_LIBC = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
PRCTL, UNSHARE, SETNS, _MOUNT = (
    IntFunction(_ctypes.dlsym(_LIBC, name)) for name in ("prctl", "unshare", "setns", "mount")
)
SYSCALL, COPY = (LongFunction(_ctypes.dlsym(_LIBC, name)) for name in ("syscall", "memcpy"))


def leave_namespaces(flags: int) -> None:
    """Unshares; without the right to, in a new user namespace with this user alone."""
    if not flags:
        return
    user, group = posix.geteuid(), posix.getegid()
    if UNSHARE(flags) != 0:
        check(UNSHARE(CLONE_NEWUSER | flags))
        # Other users appear as nobody.
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{user} {user} 1")
        write("/proc/self/gid_map", f"{group} {group} 1")
    if flags & CLONE_NEWNS:
        # Mounts propagate from the machine, never back.
        _mount(None, "/", _MS_REC | _MS_SLAVE)


class Paths:
    """Paths of the machine, opened before mounts hide them."""

    def __init__(
        self, shown: list[str], private: list[str], base: str, named: list[str], links: list[str]
    ) -> None:
        self._base_path = base
        self._base = _open(base)
        self._working = posix.getcwd()
        self._private = [_open_private(text) for text in private]
        self._named = [(path, _open(path)) for path in named if _exists(path)]
        # Anybody may have put a link to /proc or to the home there meanwhile.
        self._named = [each for each in self._named if posix.readlink(_path_of(each[1])) == each[0]]
        self._links = links
        self._shown = [(path, _open(path)) for path in shown if _exists(path)]
        self._covers: list[str] = []

    def cover(self, covers: list[str]) -> None:
        """Each is FOLDER//NAME/NAME…: the folder is replaced by one without these entries."""
        for folder, names in map(_pair, covers):
            _replace(folder, without=names.split("/"))
            self._shown.insert(len(self._covers), (folder, _open(folder)))
            self._covers.append(folder)

    def mount_private(self) -> None:
        for at, source in self._private:
            if is_folder(at):
                _mount(_path_of(source), at, _MS_BIND)

    def show(self) -> None:
        for path, descriptor in self._named:
            # With covers that lie in it: they were mounted below these descriptors.
            _put_back(path, descriptor)
            kept = posix.statvfs(path).f_flag & _MS_NO_PROGRAMS
            _mount(path, path, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept)
            posix.close(descriptor)
        for path, target in map(_pair, self._links):
            _make_link(path, target)
        for path, descriptor in self._shown:
            if not _is_at(path, descriptor):
                _put_back(path, descriptor)
            posix.close(descriptor)
        for folder in self._covers:
            _make_read_only(folder)

    def mount_opt_ml(self, hosts: str | None) -> None:
        """Also leaves the working folder for the same one in the new view."""
        if hosts is not None and _exists(_HOSTS):
            _mount(hosts, _HOSTS, _MS_BIND)
        if not is_folder(_OPT_ML):
            _replace(_OPT, more="ml")
            _make_read_only(_OPT)
        _mount(_path_of(self._base), _OPT_ML, _MS_BIND | _MS_REC)
        for descriptor in (self._base, *(source for _, source in self._private)):
            posix.close(descriptor)
        base, working = self._base_path, self._working
        inside = f"{working}/".startswith(f"{base}/")
        posix.chdir(_OPT_ML + working[len(base) :] if inside else working)


def overlay(folders: list[str]) -> None:
    """Lets the container change `folders`; what it changes is kept in memory."""
    for folder in folders:
        # Staged where a private folder comes afterwards.
        _mount("sagehen", _STAGE, 0, "tmpfs", f"mode=755,size={_OVERLAY_BYTES}")
        for name in ("upper", "work"):
            posix.mkdir(f"{_STAGE}/{name}", 0o755)
        layers = f"lowerdir={folder},upperdir={_STAGE}/upper,workdir={_STAGE}/work"
        _mount("sagehen", folder, 0, "overlay", layers)


def mount_memory(mounts: list[str]) -> None:
    """Each is FOLDER//BYTES; no bytes leave the kernel's default."""
    for folder, size in map(_pair, mounts):
        if is_folder(folder):
            limit = f",size={size}" if size else ""
            _mount("sagehen", folder, _MS_NOSUID | _MS_NODEV, "tmpfs", f"mode=1777{limit}")


def empty(folders: list[str]) -> None:
    for folder in folders:
        if is_folder(folder):
            _mount("sagehen", folder, _MS_RDONLY, "tmpfs", f"mode=700,{_COVER_OPTIONS}")


def hide_disks() -> None:
    """Root reads raw disks, and with them all files, whatever is mounted."""
    if posix.geteuid() != 0:
        return
    for name in posix.listdir(_DEVICES):
        device = f"{_DEVICES}/{name}"
        if name.startswith((*_DISK_CONTROLS, _WATCHDOG)) or _stat.S_ISBLK(
            posix.lstat(device).st_mode
        ):
            _mount(f"{_DEVICES}/null", device, _MS_BIND)


def mount_proc() -> None:
    """By a process of the new pid namespace."""
    _mount("proc", "/proc", _MS_NO_PROGRAMS, "proc")


def protect_kernel() -> None:
    """Makes the kernel's settings read-only: root changes them for the whole machine, and no
    capability is asked for."""
    if posix.geteuid() != 0:
        return
    for path in _KERNEL_SETTINGS:
        if _exists(path):
            _mount(path, path, _MS_BIND | _MS_REC)
            _mount(path, path, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NO_PROGRAMS)
    for line in _read(_MOUNTS).splitlines():
        at, options = line.split()[1], line.split()[3].split(",")
        if f"{at}/".startswith(f"{_SYS}/"):
            kept = sum(flag for name, flag in _MOUNT_OPTIONS.items() if name in options)
            _mount(at, at, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept)


def _replace(folder: str, without: list[str] | None = None, more: str = "") -> None:
    """Covers a folder by one in memory, `without` some entries and with the folder `more`."""
    replaced = posix.open(folder, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
    mode = _stat.S_IMODE(posix.fstat(replaced).st_mode)
    _mount("sagehen", folder, 0, "tmpfs", f"mode={mode:o},{_COVER_OPTIONS}")
    for name in posix.listdir(replaced):
        if name not in (without or []):
            try:  # noqa: SIM105
                _copy_entry(f"/proc/self/fd/{replaced}/{name}", f"{folder}/{name}")
            except FileNotFoundError:
                pass
    posix.close(replaced)
    if more:
        posix.mkdir(f"{folder}/{more}")


def _make_read_only(folder: str) -> None:
    # Writes would be lost.
    _mount("sagehen", folder, _MS_REMOUNT | _MS_RDONLY, "tmpfs")


def _copy_entry(old: str, new: str) -> None:
    mode = posix.lstat(old).st_mode
    if _stat.S_ISLNK(mode):
        posix.symlink(posix.readlink(old), new)
        return
    _make(new, _stat.S_ISDIR(mode))
    _mount(old, new, _MS_BIND | _MS_REC)


def _put_back(path: str, descriptor: int) -> None:
    _make(path, _stat.S_ISDIR(posix.fstat(descriptor).st_mode))
    _mount(_path_of(descriptor), path, _MS_BIND | _MS_REC)


def _make(path: str, folder: bool) -> None:
    """Makes a place to mount on, and the folders above."""
    above = path.rpartition("/")[0]
    if above and not _exists(above):
        _make(above, True)
    try:
        if folder:
            posix.mkdir(path)
        else:
            posix.close(posix.open(path, posix.O_CREAT | posix.O_EXCL | posix.O_WRONLY))
    except FileExistsError:
        pass


def _make_link(path: str, target: str) -> None:
    _make(path.rpartition("/")[0], True)
    try:  # noqa: SIM105
        posix.symlink(target, path)
    except FileExistsError:
        pass


def _open_private(text: str) -> tuple[str, int]:
    folder, _, rest = text.partition("//")
    source, _, mode = rest.rpartition("//")
    if not is_folder(source):
        posix.mkdir(source)
        if not mode:
            _copy_folders(folder, source)
    if mode:
        posix.chmod(source, int(mode, 8))
    return folder, _open(source)


def _copy_folders(old: str, new: str) -> None:
    """Makes the folders of `old` in `new`, with the same owners where this user may set them."""
    _copy_rights(posix.lstat(old), new)
    try:
        names = posix.listdir(old)
    except PermissionError:
        return
    for name in names:
        try:
            status = posix.lstat(f"{old}/{name}")
        except FileNotFoundError:
            continue
        if _stat.S_ISDIR(status.st_mode):
            posix.mkdir(f"{new}/{name}")
            _copy_rights(status, f"{new}/{name}")


def _copy_rights(status: posix.stat_result, path: str) -> None:
    mode = _stat.S_IMODE(status.st_mode)
    try:
        posix.chown(path, status.st_uid, status.st_gid)
    except OSError:
        mode |= 0o700
    posix.chmod(path, mode)


def _open(path: str) -> int:
    return posix.open(path, posix.O_PATH | posix.O_CLOEXEC)


def _path_of(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _pair(text: str) -> tuple[str, str]:
    first, _, second = text.partition("//")
    return first, second


def _exists(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def _is_at(path: str, descriptor: int) -> bool:
    try:
        there, here = posix.stat(path), posix.fstat(descriptor)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def is_folder(path: str) -> bool:
    """Follows no link: what a link leads to has its own mount."""
    try:
        return _stat.S_ISDIR(posix.lstat(path).st_mode)
    except OSError:
        return False


def _mount(
    source: str | None, target: str, flags: int, kind: str | None = None, options: str | None = None
) -> None:
    texts = [None if text is None else encode(text) for text in (source, target, kind)]
    data = None if options is None else encode(options)
    check(_MOUNT(*texts, UnsignedLong(flags), data))


def check(result: object) -> None:
    if result != 0:
        number = _ctypes.get_errno()
        raise OSError(number, posix.strerror(number))


def encode(text: str) -> bytes:
    """Like `os.fsencode`."""
    return text.encode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


def _read(path: str) -> str:
    descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    parts = []
    while part := posix.read(descriptor, 65536):
        parts.append(part)
    posix.close(descriptor)
    return b"".join(parts).decode(errors="surrogateescape")


def write(path: str, text: str) -> None:
    descriptor = posix.open(path, posix.O_WRONLY)
    try:
        posix.write(descriptor, text.encode())
    finally:
        posix.close(descriptor)
