"""The calls that jobs.py makes to a running server, and how it sees which jobs have ended."""

import http.client
import json
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from sides import Failed

FINAL = ("Completed", "Failed", "Stopped")


def ask_service(url: str, of_type: str, jobs: int, senders: int) -> None:
    """POST so many requests for a job, over some connections that stay open."""
    shares = [jobs // senders + (number < jobs % senders) for number in range(senders)]
    with ThreadPoolExecutor(senders) as pool:
        for _ in pool.map(lambda share: _post(url, of_type, share), shares):
            pass


def _post(url: str, of_type: str, count: int) -> None:
    body = json.dumps({"type": of_type})
    with closing(http.client.HTTPConnection(url.removeprefix("http://"))) as connection:
        for _ in range(count):
            connection.request("POST", "/dev/inference", body)
            answer = connection.getresponse()
            text = answer.read().decode()
            if answer.status != 200:
                raise Failed(f"The service answers {answer.status}: {text}")


def count_ended(home: Path) -> int:
    """From the state itself: to ask the server would be work for it.

    Raises Failed where one has not ended well.
    """
    path = home / "state.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as state:
        rows = state.execute("SELECT status, count(*) FROM training_jobs GROUP BY status")
        counts: dict[str, int] = dict(rows.fetchall())
    _check(counts)
    return sum(counts.get(status, 0) for status in FINAL)


def _check(counts: dict[str, int]) -> None:
    bad: Sequence[str] = [
        f"{counts[status]} {status}" for status in FINAL[1:] if counts.get(status)
    ]
    if bad:
        raise Failed(f"Jobs that did not complete: {', '.join(bad)}.")
