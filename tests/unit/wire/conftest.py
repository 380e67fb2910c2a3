"""A clock that stands still, and requests as a signer of botocore's leaves them."""

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from sagehen.wire.http import Request

NOW = 1_793_525_400.0  # 2026-11-01 09:30:00 UTC


class StillClock:
    def now(self) -> float:
        return NOW

    def monotonic(self) -> float:
        return NOW

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("Nothing here waits.")


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture(scope="session")
def as_received() -> Callable[..., Request]:
    """`as_received(signed_request)`: what a server has of an AWSRequest."""

    def receive(request, body: bytes = b"") -> Request:
        url = urlsplit(request.url)
        headers: dict[str, str] = {}
        for name, value in request.headers.items():
            lowered, value = name.lower(), value.strip(" ")
            headers[lowered] = f"{headers[lowered]},{value}" if lowered in headers else value
        headers.setdefault("host", url.netloc)
        headers["content-length"] = str(len(body))
        return Request(request.method, url.path, url.query, headers, body)

    return receive
