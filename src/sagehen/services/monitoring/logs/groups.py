"""Log groups and streams, under SageMaker's names, and their files.

Requested names are compared with existing ones and never become paths.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sagehen.base.clock import Clock
from sagehen.base.home import Home
from sagehen.base.settings import Settings
from sagehen.frame.arns import ArnMaker
from sagehen.services.monitoring.logs.errors import invalid, no_group, no_stream
from sagehen.services.monitoring.logs.stored_log import created_ms

__all__ = ["Group", "LogContext", "LogStream", "all_groups", "find_group", "find_stream"]

TRAINING_JOBS = "/aws/sagemaker/TrainingJobs"
TRANSFORM_JOBS = "/aws/sagemaker/TransformJobs"
ENDPOINTS = "/aws/sagemaker/Endpoints/"

_ARN = re.compile(r"arn:[\w-]+:logs:[^:]*:[^:]*:log-group:([^:*]+)(:\*)?")
_LOG = ".log"
_OF_SERVER = "data-log"
"""the log beside those of an instance's containers in which the server writes"""
_DATA_LOG = ".data-log.log"
"""beside an instance's log: the stream has the instance's name, and `/data-log`"""


class LogContext(Protocol):
    """The part of a RequestContext that logs need; a node has no more of one."""

    @property
    def settings(self) -> Settings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def arns(self) -> ArnMaker: ...


@dataclass(frozen=True)
class LogStream:
    """One container's log."""

    key: str
    """name without its time"""
    path: Path
    timed_by: Path | None = None
    """the log whose start time, in seconds since the epoch, follows the key in the name"""
    suffix: str = ""
    """the end of the name, behind that time"""

    @property
    def sort_key(self) -> str:
        """Unique, and known before the start time is."""
        return self.key + self.suffix

    @property
    def begun_ms(self) -> int:
        """Returns the time in the name, in epoch milliseconds; 0 if there is none."""
        return 0 if self.timed_by is None else created_ms(self.timed_by)

    @property
    def name(self) -> str:
        return (
            self.key if self.timed_by is None else f"{self.key}{self.begun_ms // 1000}{self.suffix}"
        )

    @property
    def is_named(self) -> bool:
        """Returns False while the start time, a part of the name, is not recorded: a name given out
        now would change."""
        timed_by = self.timed_by
        return timed_by is None or created_ms(timed_by) > 0 or _size(timed_by) > 0

    @property
    def modified_ms(self) -> int:
        """Returns the time of the last write, or 0 if the file is gone."""
        try:
            return int(self.path.stat().st_mtime * 1000)
        except OSError:
            return 0


@dataclass(frozen=True)
class Group:
    """The logs in one folder: `<job>/<host>.log`, with `<job>/<instance>.data-log.log` of transform
    jobs, or `<variant>/<instance>/<container>.log`."""

    name: str
    folder: Path
    of_jobs: bool

    def streams(self, prefix: str = "") -> list[LogStream]:
        """Returns streams with the name prefix, sorted."""
        streams = self._of_jobs(prefix) if self.of_jobs else self._of_endpoint()
        matching = [stream for stream in streams if _begins(stream, prefix)]
        return sorted(matching, key=lambda stream: stream.sort_key)

    def _of_jobs(self, prefix: str) -> Iterator[LogStream]:
        job, slash, _ = prefix.partition("/")
        for folder in _folders(self.folder):
            if folder.name == job if slash else folder.name.startswith(job):
                for path in _logs(folder):
                    stream = _stream_of_job(folder, path)
                    if stream.is_named:
                        yield stream

    def _of_endpoint(self) -> Iterator[LogStream]:
        for variant in _folders(self.folder):
            for instance in _folders(variant):
                logs = {path.name.removesuffix(_LOG): path for path in _logs(instance)}
                containers = logs.keys() - {_OF_SERVER}
                for container, path in logs.items():
                    name = f"{variant.name}/{instance.name}"
                    is_only_one = container in containers and len(containers) == 1
                    yield LogStream(name if is_only_one else f"{name}/{container}", path)


def all_groups(call: LogContext) -> list[Group]:
    logs = Home(call.settings.home).logs
    endpoints = [
        Group(ENDPOINTS + folder.name, folder, of_jobs=False)
        for folder in _folders(logs / "endpoints")
    ]
    jobs = [
        Group(TRAINING_JOBS, logs / "training-jobs", of_jobs=True),
        Group(TRANSFORM_JOBS, logs / "transform-jobs", of_jobs=True),
    ]
    return sorted(
        [*endpoints, *(group for group in jobs if _folders(group.folder))],
        key=lambda group: group.name,
    )


def find_group(call: LogContext, params: dict[str, object]) -> Group:
    """Finds a group by name or ARN; raises AwsError."""
    identifiers = [
        params[member] for member in ("logGroupName", "logGroupIdentifier") if member in params
    ]
    if len(identifiers) != 1:
        raise invalid("Exactly one of logGroupName and logGroupIdentifier must be given.")
    text = str(identifiers[0])
    arn = _ARN.fullmatch(text)
    name = arn[1] if arn else text
    for group in all_groups(call):
        if group.name == name:
            return group
    raise no_group()


def find_stream(group: Group, name: str) -> LogStream:
    """Raises AwsError if there is none."""
    for stream in group.streams(name.rpartition("/")[0] + "/" if group.of_jobs else ""):
        if stream.name == name:
            return stream
    raise no_stream()


def _stream_of_job(folder: Path, path: Path) -> LogStream:
    if path.name.endswith(_DATA_LOG):
        host = path.name.removesuffix(_DATA_LOG)
        instance_log = folder / f"{host}{_LOG}"
        return LogStream(f"{folder.name}/{host}-", path, timed_by=instance_log, suffix="/data-log")
    return LogStream(f"{folder.name}/{path.name.removesuffix(_LOG)}-", path, timed_by=path)


def _begins(stream: LogStream, prefix: str) -> bool:
    if stream.key.startswith(prefix):
        return True
    return prefix.startswith(stream.key) and stream.name.startswith(prefix)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _folders(folder: Path) -> list[Path]:
    """Returns subfolders; none if the folder is gone."""
    try:
        with os.scandir(folder) as entries:
            return [folder / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _logs(folder: Path) -> list[Path]:
    """Returns log paths; a log being rotated counts under its newest file's name."""
    try:
        names = {name.removesuffix(".1") for name in os.listdir(folder)}
    except OSError:
        return []
    return [folder / name for name in names if name.endswith(_LOG)]
