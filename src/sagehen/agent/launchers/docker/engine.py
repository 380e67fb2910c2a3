"""The Docker Engine's calls. The only module that imports `docker`; imported where one is needed.

Every call blocks, and raises EngineError, or EngineUnavailable if the engine does not answer.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any

from docker import APIClient
from docker.errors import APIError, DockerException, NotFound
from docker.utils import version_gte
from urllib3.exceptions import HTTPError

from sagehen.agent.errors import EngineError, EngineNotFound, EngineUnavailable
from sagehen.agent.launchers.docker.request import ImageInfo

__all__ = ["AttachedOutput", "Engine", "open_engine"]

CALL_SECONDS = 60
"""of one call; pulls, logs and waits take as long as they take"""
PULL_SILENCE_SECONDS = 300
"""an engine that pulls tells its progress several times a second"""
CONNECTIONS = 16
_FRAME = struct.Struct(">BxxxL")
"""before each piece of output: its stream and length"""
_READ_BYTES = 64 * 1024


def open_engine(host: str) -> "Engine":
    """Args:
    host: `unix:///path`.
    """
    with _translated(host):
        # First, as the library leaves sockets open that do not connect.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(CALL_SECONDS)
            probe.connect(host.removeprefix("unix://"))
        client = APIClient(
            base_url=host, version="auto", timeout=CALL_SECONDS, max_pool_size=CONNECTIONS
        )
    return Engine(host, client)


class Engine:
    """One connection to an engine, for any number of threads."""

    def __init__(self, host: str, client: APIClient) -> None:
        self._host = host
        self._client = client

    def ping(self) -> None:
        with _translated(self._host):
            self._client.ping()

    def find_image(self, name: str) -> ImageInfo | None:
        try:
            with _translated(self._host):
                image = self._client.inspect_image(name)
        except EngineNotFound:
            return None
        config = image.get("Config") or {}
        return ImageInfo(
            name=name, labels=config.get("Labels") or {}, user=config.get("User") or ""
        )

    def pull(self, name: str, seconds: float) -> None:
        """Blocks for `seconds` and up to PULL_SILENCE_SECONDS more."""
        deadline = time.monotonic() + seconds
        silence = min(seconds, PULL_SILENCE_SECONDS)
        failure = None
        with _translated(self._host), contextlib.closing(self._open_puller(silence)) as puller:
            try:
                for line in puller.pull(name, stream=True, decode=True):
                    # An error in mid-stream comes with status 200.
                    failure = line.get("error", failure)
                    if time.monotonic() > deadline:
                        raise EngineError(
                            f"it took longer than {seconds:g} s (docker_pull_timeout_seconds)"
                        )
            except (DockerException, HTTPError, OSError) as error:
                if isinstance(_root_cause(error), TimeoutError):
                    raise EngineError(
                        f"nothing came from the registry for {silence:g} s"
                    ) from error
                raise
        if failure is not None:
            raise EngineError(str(failure))

    def _open_puller(self, silence: float) -> APIClient:
        # It reads the logins of now: users log in at any time.
        return _Puller(self._host, self._client.api_version, timeout=silence)

    def create(self, request: dict[str, Any], name: str) -> str:
        with _translated(self._host):
            created = self._client.create_container_from_config(request, name)
        return str(created["Id"])

    def attach(self, container: str) -> "AttachedOutput":
        with _translated(self._host):
            stream = self._client.attach_socket(container, {"stdout": 1, "stderr": 1, "stream": 1})
        return AttachedOutput(stream)

    def start(self, container: str) -> None:
        with _translated(self._host):
            self._client.start(container)

    def signal(self, container: str, name: str) -> None:
        with _translated(self._host):
            self._client.kill(container, name)

    def wait(self, container: str) -> int:
        """Returns the exit code when the container has ended."""
        with _translated(self._host):
            # In pieces: a broken connection is noticed.
            return int(self._client.wait(container, timeout=None)["StatusCode"])

    def inspect(self, container: str) -> dict[str, Any]:
        with _translated(self._host):
            return dict(self._client.inspect_container(container))

    def stats(self, container: str) -> dict[str, Any]:
        with _translated(self._host):
            # Without the second sample that others take percentages from, which takes a second.
            one_shot = True if version_gte(self._client.api_version, "1.41") else None
            return dict(self._client.stats(container, stream=False, one_shot=one_shot))

    def remove(self, container: str) -> None:
        """Ends the container too; also removes its anonymous volumes."""
        with contextlib.suppress(EngineNotFound), _translated(self._host):
            self._client.remove_container(container, force=True, v=True)

    def list_containers(self, label: str) -> list[dict[str, Any]]:
        """Lists containers with `name=value`, also ended ones."""
        with _translated(self._host):
            return list(self._client.containers(all=True, filters={"label": label}))

    def list_networks(self, label: str) -> list[dict[str, Any]]:
        with _translated(self._host):
            return list(self._client.networks(filters={"label": label}))

    def create_network(
        self, name: str, labels: Mapping[str, str], options: Mapping[str, str]
    ) -> str:
        with _translated(self._host):
            created = self._client.create_network(
                name,
                driver="bridge",
                check_duplicate=True,
                labels=dict(labels),
                options=dict(options),
            )
        return str(created["Id"])

    def inspect_network(self, name: str) -> dict[str, Any]:
        with _translated(self._host):
            return dict(self._client.inspect_network(name))

    def remove_network(self, name: str) -> None:
        with contextlib.suppress(EngineNotFound), _translated(self._host):
            self._client.remove_network(name)

    def close(self) -> None:
        self._client.close()


class _Puller(APIClient):  # type: ignore[misc]
    """Bounds also the silence of pulls, for which the library waits without end: neither the engine
    nor the library notices a registry that does not answer."""

    def send(self, request: Any, **options: Any) -> Any:
        if options.get("timeout") is None:
            options["timeout"] = self.timeout
        return super().send(request, **options)


class AttachedOutput:
    """The output of a container; iteration ends with its output, or when the engine is gone."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        stream = self._stream
        with contextlib.closing(self), contextlib.suppress(OSError):
            while len(header := _read_exactly(stream, _FRAME.size)) == _FRAME.size:
                _, length = _FRAME.unpack(header)
                while length > 0 and (data := stream.read(min(length, _READ_BYTES))):
                    length -= len(data)
                    yield data

    def close(self) -> None:
        # The library's answer holds the connection too.
        self._stream._response.raw.close()
        self._stream.close()


@contextlib.contextmanager
def _translated(host: str) -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise EngineNotFound(_text(error)) from error
    except APIError as error:
        raise EngineError(_text(error)) from error
    except (DockerException, HTTPError, OSError) as error:
        raise EngineUnavailable(
            f"the Docker Engine at {host} does not answer ({_cause(error)}): start it, let the "
            "server's user open its socket (usually `sudo usermod -aG docker USER`), or correct "
            "docker_host or DOCKER_HOST"
        ) from error


def _text(error: APIError) -> str:
    return str(error.explanation or error)


def _cause(error: BaseException) -> str:
    """Returns the operating system's message, which lies below three libraries' own."""
    root = _root_cause(error)
    return getattr(root, "strerror", None) or str(root) or type(root).__name__


def _root_cause(error: BaseException) -> BaseException:
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    return error


def _read_exactly(stream: Any, size: int) -> bytes:
    """Returns less at the end."""
    parts = b""
    while len(parts) < size and (data := stream.read(size - len(parts))):
        parts += data
    return parts
