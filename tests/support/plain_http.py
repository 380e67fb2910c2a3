"""HTTP without a client of AWS: one request, and its answer whatever the status."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What a server has answered, read to its end."""

    status: int
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    url: str,
    data: bytes | None = None,
    headers: dict[str, str] | None = None,
    method: str | None = None,
    timeout: float = 60,
) -> Answer:
    """GET, or POST where there is `data`.

    urllib makes an exception of an error's answer, whose socket stays open for as long as anything
    knows the exception: it would be told of in whatever test runs when it is collected.
    """
    request = urllib.request.Request(url, data, headers or {}, method=method)
    try:
        answer = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return Answer(answer.status, answer.headers, answer.read())
