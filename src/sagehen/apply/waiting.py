"""What a run works with, and how it waits for what it has begun."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, ClientError

from sagehen.apply.aws import Aws, told
from sagehen.apply.desired import Desired
from sagehen.apply.kinds import Live
from sagehen.apply.stack import Journal
from sagehen.errors import Invalid, SagehenError, Unavailable

__all__ = [
    "Interrupted",
    "Work",
    "in_our_terms",
    "poll",
    "settled",
    "wait_until_gone",
    "wait_until_ready",
    "what",
]

_SHORTEST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_SHARE_OF_WAIT = 0.1
"""A pause is this share of the wait so far, and so is the most that is waited too long."""


class Interrupted(Exception):
    """The user asked to stop; `str` says what is under way still, if anything is."""


@dataclass
class Work:
    """What a run works with."""

    aws: Aws
    journal: Journal
    stop: threading.Event
    say: Callable[[str], None]
    timeout_seconds: float
    """For one resource to become ready, or to go."""


def settled(desired: Desired, work: Work) -> Live | None:
    return poll(
        work,
        lambda: desired.kind.look(work.aws, desired.name, desired.properties),
        lambda live: live is None or live.status not in ("busy", "going"),
        f"{what(desired)} is still changing",
    )


def wait_until_ready(desired: Desired, work: Work) -> Live:
    live = settled(desired, work)
    if live is None:
        raise Invalid(f"{what(desired)} is gone again. Apply once more.")
    if live.status == "failed":
        raise Invalid(f"{what(desired)} failed: {live.reason or 'no reason was given.'}")
    return live


def wait_until_gone(desired: Desired, work: Work, only_if_going: bool = False) -> None:
    poll(
        work,
        lambda: desired.kind.look(work.aws, desired.name, desired.properties),
        lambda live: live is None or (only_if_going and live.status != "going"),
        f"{what(desired)} is still there",
    )


def poll(
    work: Work,
    look: Callable[[], Live | None],
    done: Callable[[Live | None], bool],
    otherwise: str,
) -> Live | None:
    """What `look` finds once that is `done`; a server that is away meanwhile is waited for."""
    began = time.monotonic()
    while True:
        try:
            live = look()
            if done(live):
                return live
            work.journal.beat()
            trouble = ""
        except (ClientError, BotoCoreError, Unavailable) as error:
            if not isinstance(in_our_terms(error), Unavailable):
                raise
            trouble = f" ({error})"
        waited = time.monotonic() - began
        if waited > work.timeout_seconds:
            raise Unavailable(
                f"{otherwise} after {work.timeout_seconds:g} s{trouble}. Run the same again to go "
                "on waiting."
            )
        if work.stop.wait(_pause_after(waited)):
            raise Interrupted(otherwise)


def _pause_after(waited: float) -> float:
    return min(max(_SHORTEST_PAUSE_SECONDS, waited * _SHARE_OF_WAIT), _LONGEST_PAUSE_SECONDS)


def what(desired: Desired) -> str:
    return f"{desired.type} {desired.logical_id} ({desired.name or 'unnamed'})"


def in_our_terms(error: ClientError | BotoCoreError | SagehenError) -> SagehenError:
    """An error of boto3's, or ours, as ours."""
    return error if isinstance(error, SagehenError) else told(error)
