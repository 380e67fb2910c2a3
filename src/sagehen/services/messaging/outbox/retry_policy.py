"""SNS delivery policies: retry delays, rate limit and content type.

Source: SNS's developer guide (sns-message-delivery-retries), which only names the backoff
functions; here each grows from the least delay to the greatest at the phase's end.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

import msgspec

from sagehen.base.errors import Invalid

__all__ = [
    "MAIL_DELAYS",
    "WEBHOOK_DELAYS",
    "DeliveryPolicy",
    "RetryPolicy",
    "effective_policy",
    "read_subscription_policy",
    "read_topic_policy",
]

T = TypeVar("T")

LONGEST_DELAY_SECONDS = 3600
LONGEST_RETRYING_SECONDS = 3600
MOST_RETRIES = 100
DEFAULT_CONTENT_TYPE = "text/plain; charset=UTF-8"

_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_RETRIES)]
_Delay = Annotated[int, msgspec.Meta(ge=1, le=LONGEST_DELAY_SECONDS)]
_Growth = Literal["linear", "arithmetic", "geometric", "exponential"]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Phases of retries, in seconds: immediate, at the least delay, growing, at the greatest."""

    min_delay_target: _Delay = 20
    max_delay_target: _Delay = 20
    num_retries: _Count = 3
    num_max_delay_retries: _Count | None = 0
    num_no_delay_retries: _Count | None = 0
    num_min_delay_retries: _Count | None = 0
    backoff_function: _Growth | None = "linear"

    def delays(self) -> list[float]:
        at_once, least, most = self._phases()
        growing = self.num_retries - at_once - least - most
        return [
            *[0.0] * at_once,
            *[float(self.min_delay_target)] * least,
            *[self._grown(step / growing) for step in range(1, growing + 1)],
            *[float(self.max_delay_target)] * most,
        ]

    def check(self) -> None:
        """Raises Invalid if the numbers conflict."""
        if self.max_delay_target < self.min_delay_target:
            raise Invalid("maxDelayTarget must be greater than or equal to minDelayTarget")
        if sum(self._phases()) > self.num_retries:
            raise Invalid("numRetries must be greater than or equal to the retries of its phases")
        if sum(self.delays()) > LONGEST_RETRYING_SECONDS:
            raise Invalid(
                f"the total retry time must be at most {LONGEST_RETRYING_SECONDS} seconds"
            )

    def _phases(self) -> tuple[int, int, int]:
        return (
            self.num_no_delay_retries or 0,
            self.num_min_delay_retries or 0,
            self.num_max_delay_retries or 0,
        )

    def _grown(self, part: float) -> float:
        least, most = self.min_delay_target, self.max_delay_target
        match self.backoff_function:
            case "geometric":
                return least * math.pow(most / least, part)
            case "arithmetic":
                return least + (most - least) * part**2
            case "exponential":
                return least + (most - least) * (math.exp2(10 * part) - 1) / 1023
            case _:
                return least + (most - least) * part


class _Throttle(msgspec.Struct, frozen=True, rename="camel"):
    max_receives_per_second: Annotated[int, msgspec.Meta(ge=1)] | None = None


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    header_content_type: (
        Annotated[str, msgspec.Meta(pattern=r"^[\x21-\x7e][\x20-\x7e]{0,254}$")] | None
    ) = None


class _Subscription(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    healthy_retry_policy: RetryPolicy | None = None
    sickly_retry_policy: None = None
    throttle_policy: _Throttle | None = None
    request_policy: _Request | None = None
    guaranteed: bool = False


class _TopicHttp(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    default_healthy_retry_policy: RetryPolicy | None = None
    default_sickly_retry_policy: None = None
    disable_subscription_overrides: bool = False
    default_throttle_policy: _Throttle | None = None
    default_request_policy: _Request | None = None


class _Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    http: _TopicHttp = _TopicHttp()


class DeliveryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP subscription's effective policy."""

    retries: RetryPolicy | None
    """None if set nowhere"""
    most_per_second: int | None = None
    content_type: str | None = None


def read_topic_policy(text: str | None) -> _Topic:
    """Raises Invalid."""
    topic = _read(text, _Topic)
    if topic.http.default_healthy_retry_policy is not None:
        topic.http.default_healthy_retry_policy.check()
    return topic


def read_subscription_policy(text: str | None) -> _Subscription:
    """Raises Invalid."""
    subscription = _read(text, _Subscription)
    if subscription.healthy_retry_policy is not None:
        subscription.healthy_retry_policy.check()
    return subscription


def effective_policy(topic_text: str | None, subscription_text: str | None) -> DeliveryPolicy:
    """Raises Invalid."""
    topic = read_topic_policy(topic_text).http
    own = read_subscription_policy(subscription_text)
    if topic.disable_subscription_overrides:
        own = _Subscription()
    throttle = own.throttle_policy or topic.default_throttle_policy or _Throttle()
    request = own.request_policy or topic.default_request_policy or _Request()
    return DeliveryPolicy(
        retries=own.healthy_retry_policy or topic.default_healthy_retry_policy,
        most_per_second=throttle.max_receives_per_second,
        content_type=request.header_content_type,
    )


MAIL_DELAYS: Sequence[float] = (
    *[10.0] * 2,
    *RetryPolicy(
        min_delay_target=10, max_delay_target=600, num_retries=10, backoff_function="exponential"
    ).delays(),
    *[600.0] * 38,
)
"""seconds; SNS's for SMTP, some six hours in all"""

WEBHOOK_DELAYS: Sequence[float] = (
    5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400,
)  # fmt: skip
"""seconds; Standard Webhooks' recommendation, some three days in all"""


def _read(text: str | None, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text or "{}", type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"DeliveryPolicy: {error}") from None
