"""Unpacks untrusted model archives, never outside their folder.

Nothing is written through a link, and every link must lead inside. Python's `data` filter resolves
each path from the root, and chains of links again for each link: minutes for 100,000 members.
"""

import errno
import gzip
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from sagehen.base.errors import ArtifactRejected

__all__ = ["Unpacked", "check_name", "make_read_only", "unpack", "unpack_plain"]

MAX_ENTRIES = 100_000
MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 1024
COPY_BYTES = 2**20
MAX_LINKS = 40
"""Linux's limit"""
MAX_HEADER_BYTES = 2**20
"""of an extended header, which tarfile holds in memory"""
PADDING_BYTES_PER_ENTRY = 4096
"""for headers and padding"""
MAX_TRAILING_BYTES = 16 * 2**20
"""of zeros behind the last entry; tar writes blocks of 10 KiB, or as its -b says"""


@dataclass(frozen=True)
class Unpacked:
    size_bytes: int
    files: int


def unpack(archive: Path | BinaryIO, folder: Path, *, max_bytes: int) -> Unpacked:
    """Unpacks a tar.gz into the empty `folder`. Blocks. On failure the caller removes the folder.

    Raises:
        ArtifactRejected: not a tar.gz, cut short, more than `max_bytes`, or with forbidden
            entries.
    """
    with _rejecting(), gzip.open(archive, "rb") as plain:
        return _unpack(plain, folder, max_bytes)  # type: ignore[arg-type]


def unpack_plain(tar: BinaryIO, folder: Path, *, max_bytes: int) -> Unpacked:
    """Unpacks an uncompressed archive as `unpack` does. `tar` is read once, forwards."""
    with _rejecting():
        return _unpack(tar, folder, max_bytes)


def _unpack(plain: BinaryIO, folder: Path, max_bytes: int) -> Unpacked:
    reader = _ForwardReader(plain, max_bytes)
    with tarfile.open(fileobj=reader, mode="r:") as tar:  # type: ignore[call-overload]
        unpacked = _Extraction(Path(os.path.realpath(folder)), max_bytes).run(tar)
    reader.finish()
    return unpacked


@contextmanager
def _rejecting() -> Iterator[None]:
    """Turns errors of malformed archives into ArtifactRejected."""
    try:
        yield
    except tarfile.ReadError as error:
        raise ArtifactRejected("It is not a gzip-compressed tar archive.") from error
    except RecursionError:
        # tarfile recurses for headers of headers; its traceback is useless.
        raise ArtifactRejected("It holds too many nested extended headers.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        raise ArtifactRejected(f"It is broken or cut short: {error}.") from error
    except (UnicodeError, OverflowError, ValueError) as error:
        raise ArtifactRejected(f"It has a malformed header: {error}.") from error


def check_name(name: str) -> tuple[str, ...]:
    """Splits a relative path.

    Raises:
        ArtifactRejected: absolute, with `..`, too long or with a NUL.
    """
    if "\0" in name:
        raise ArtifactRejected("It holds a name with a NUL character.")
    if name.startswith("/"):
        raise ArtifactRejected(f"It holds the absolute path {_show(name)}.")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise ArtifactRejected(f"It holds {_show(name)}, which leads out of its folder.")
    if len(os.fsencode(name)) > MAX_PATH_BYTES:
        raise ArtifactRejected(
            f"It holds a path of more than {MAX_PATH_BYTES} bytes: {_show(name)}."
        )
    if any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in parts):
        raise ArtifactRejected(
            f"It holds a name of more than {MAX_NAME_BYTES} bytes: {_show(name)}."
        )
    return parts


def make_read_only(folder: Path) -> None:
    for path, _, files in os.walk(folder, topdown=False):
        for name in files:
            file = os.path.join(path, name)
            if not os.path.islink(file):
                os.chmod(file, os.stat(file).st_mode & 0o555)
        os.chmod(path, 0o555)


class _ForwardReader:
    """Keeps hostile headers from making tarfile read gigabytes at once or seek forever."""

    def __init__(self, file: BinaryIO, max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MAX_HEADER_BYTES:
            raise ArtifactRejected(f"It has a header of {size} bytes.")
        self._check(self._file.tell() + size)
        return self._file.read(size)

    def seek(self, position: int) -> int:
        if position < self._file.tell():
            raise ArtifactRejected("It has a header that points backwards.")
        self._check(position)
        return self._file.seek(position)

    def finish(self) -> None:
        """Reads the padding: gzip checks its checksum only at the end."""
        trailing = 0
        while data := self.read(COPY_BYTES):
            trailing += len(data)
            if trailing > MAX_TRAILING_BYTES:
                raise ArtifactRejected(
                    f"It has more than {MAX_TRAILING_BYTES} bytes behind its last entry."
                )
            if data.count(0) != len(data):
                # tarfile takes a damaged header for the end.
                raise ArtifactRejected("It is broken: an entry in it has no valid header.")

    def _check(self, position: int) -> None:
        padding = MAX_HEADER_BYTES + MAX_ENTRIES * PADDING_BYTES_PER_ENTRY
        if position > self._max_bytes + padding:
            raise ArtifactRejected(f"It unpacks to more than {self._max_bytes} bytes.")


@dataclass
class _Extraction:
    root: Path
    max_bytes: int
    size_bytes: int = 0
    files: int = 0
    links: list[Path] = field(default_factory=list)
    known_folders: set[tuple[str, ...]] = field(default_factory=lambda: {()})

    def run(self, tar: tarfile.TarFile) -> Unpacked:
        for entries, member in enumerate(tar, 1):
            if entries > MAX_ENTRIES:
                raise ArtifactRejected(f"It holds more than {MAX_ENTRIES} entries.")
            self._extract(tar, member)
            # Free what tarfile remembers.
            tar.members = []  # type: ignore[attr-defined]
        for link in self.links:
            self._check_link(link)
        return Unpacked(self.size_bytes, self.files)

    def _extract(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = check_name(member.name)
        if member.isdir():
            self._make_folder(parts)
            return
        if not parts:
            raise ArtifactRejected("It holds a file without a name.")
        self._make_folder(parts[:-1])
        path = self.root.joinpath(*parts)
        self._refuse_special(member)
        self._clear(path)
        if member.isreg():
            self._write_file(tar, member, path)
        elif member.issym():
            self._make_link(member, path)
        else:
            self._make_hard_link(member, path)

    def _refuse_special(self, member: tarfile.TarInfo) -> None:
        name = _show(member.name)
        if not (member.isreg() or member.issym() or member.islnk()):
            raise ArtifactRejected(f"It holds {name}, a device, pipe or other special file.")
        if member.isreg() and member.mode & (stat.S_ISUID | stat.S_ISGID):
            raise ArtifactRejected(f"It holds {name}, a file that runs as another user (setuid).")

    def _make_folder(self, parts: tuple[str, ...]) -> None:
        """Never creates folders through a link."""
        for depth in range(1, len(parts) + 1):
            above = parts[:depth]
            if above in self.known_folders:
                continue
            path = self.root.joinpath(*above)
            try:
                path.mkdir(mode=0o755)
            except FileExistsError:
                raise ArtifactRejected(
                    f"It holds {_show('/'.join(above))} both as a folder and as something else."
                ) from None
            self.known_folders.add(above)

    def _clear(self, path: Path) -> None:
        """Removes `path`: as in tar, a later entry replaces an earlier one; a folder stays."""
        try:
            path.unlink()
        except FileNotFoundError:
            return
        except OSError:
            raise ArtifactRejected(
                f"It holds {_show(str(path.relative_to(self.root)))} both as a folder and as "
                "something else."
            ) from None

    def _write_file(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
        self.files += 1
        self.size_bytes += member.size
        if self.size_bytes > self.max_bytes:
            raise ArtifactRejected(f"It unpacks to more than {self.max_bytes} bytes.")
        mode = 0o755 if member.mode & stat.S_IXUSR else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        source = tar.extractfile(member)
        if source is None:
            raise ArtifactRejected(f"It holds {_show(member.name)}, which is not a regular file.")
        written = 0
        with os.fdopen(os.open(path, flags, mode), "wb") as target:
            while data := source.read(COPY_BYTES):
                written += target.write(data)
        if written != member.size:
            raise ArtifactRejected(f"It ends in the middle of {_show(member.name)}.")

    def _make_link(self, member: tarfile.TarInfo, path: Path) -> None:
        if "\0" in member.linkname or member.linkname.startswith("/"):
            raise ArtifactRejected(f"It holds {_show(member.name)}, a link to an absolute path.")
        path.symlink_to(member.linkname)
        self.links.append(path)

    def _make_hard_link(self, member: tarfile.TarInfo, path: Path) -> None:
        parts = check_name(member.linkname)
        target = self.root.joinpath(*parts)
        if parts[:-1] not in self.known_folders or not _is_plain_file(target):
            raise ArtifactRejected(
                f"It holds {_show(member.name)}, a hard link to {_show(member.linkname)}, "
                "which is not a file that comes before it."
            )
        os.link(target, path, follow_symlinks=False)

    def _check_link(self, link: Path) -> None:
        if not link.is_symlink():
            return  # replaced by a later entry
        name = _show(str(link.relative_to(self.root)))
        try:
            target = _link_target(link)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise ArtifactRejected(
                    f"It holds {name}, which leads through more than {MAX_LINKS} links."
                ) from None
            target = None
        if target is None or not target.is_relative_to(self.root):
            raise ArtifactRejected(
                f"It holds {name}, a link to {_show(os.readlink(link))}, which is not inside the "
                "archive."
            )


def _link_target(link: Path) -> Path:
    """Asks the kernel for a link's target: Python's realpath would follow forever."""
    descriptor = os.open(link, os.O_PATH | os.O_CLOEXEC)
    try:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    finally:
        os.close(descriptor)


def _is_plain_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _show(name: str) -> str:
    return ascii(name if len(name) <= 100 else name[:100] + "…")
