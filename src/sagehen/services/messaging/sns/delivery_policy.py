"""SNS delivery policies: retry delays, rate limit and content type.

Source: SNS's developer guide (sns-message-delivery-retries), which only names the backoff
functions; here each grows from the minimum delay to the maximum at the phase's end.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

import msgspec

from sagehen.base.errors import Invalid

__all__ = [
    "DEFAULT_CONTENT_TYPE",
    "MAIL_DELAYS",
    "DeliveryPolicy",
    "HealthyRetryPolicy",
    "effective_policy",
    "read_subscription_policy",
    "read_topic_policy",
]

T = TypeVar("T")

MAX_DELAY_SECONDS = 3600
MAX_TOTAL_SECONDS = 3600
MAX_RETRIES = 100
DEFAULT_CONTENT_TYPE = "text/plain; charset=UTF-8"

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_RETRIES)]
_Delay = Annotated[int, msgspec.Meta(ge=1, le=MAX_DELAY_SECONDS)]
_Growth = Literal["linear", "arithmetic", "geometric", "exponential"]


class HealthyRetryPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Phases of retries, in seconds: immediate, at the minimum delay, growing, at the maximum."""

    min_delay_target: _Delay = 20
    max_delay_target: _Delay = 20
    num_retries: _Count = 3
    num_max_delay_retries: _Count | None = 0
    num_no_delay_retries: _Count | None = 0
    num_min_delay_retries: _Count | None = 0
    backoff_function: _Growth | None = "linear"

    def delays(self) -> list[float]:
        immediate, minimal, maximal = self._phases()
        growing = self.num_retries - immediate - minimal - maximal
        return [
            *[0.0] * immediate,
            *[float(self.min_delay_target)] * minimal,
            *[self._grown(step / growing) for step in range(1, growing + 1)],
            *[float(self.max_delay_target)] * maximal,
        ]

    def check(self) -> None:
        """Raises Invalid if the numbers conflict."""
        if self.max_delay_target < self.min_delay_target:
            raise Invalid("maxDelayTarget must be greater than or equal to minDelayTarget")
        if sum(self._phases()) > self.num_retries:
            raise Invalid("numRetries must be greater than or equal to the retries of its phases")
        if sum(self.delays()) > MAX_TOTAL_SECONDS:
            raise Invalid(f"the total retry time must be at most {MAX_TOTAL_SECONDS} seconds")

    def _phases(self) -> tuple[int, int, int]:
        return (
            self.num_no_delay_retries or 0,
            self.num_min_delay_retries or 0,
            self.num_max_delay_retries or 0,
        )

    def _grown(self, fraction: float) -> float:
        """`fraction` is how much of the phase is over."""
        low, high = self.min_delay_target, self.max_delay_target
        match self.backoff_function:
            case "geometric":
                return low * math.pow(high / low, fraction)
            case "arithmetic":
                return low + (high - low) * fraction**2
            case "exponential":
                return low + (high - low) * (math.exp2(10 * fraction) - 1) / 1023
            case _:
                return low + (high - low) * fraction


class _Throttle(msgspec.Struct, frozen=True, rename="camel"):
    max_receives_per_second: Annotated[int, msgspec.Meta(ge=1)] | None = None


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    header_content_type: (
        Annotated[str, msgspec.Meta(pattern=r"^[\x21-\x7e][\x20-\x7e]{0,254}$")] | None
    ) = None


class _Subscription(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    healthy_retry_policy: HealthyRetryPolicy | None = None
    sickly_retry_policy: None = None
    throttle_policy: _Throttle | None = None
    request_policy: _Request | None = None
    guaranteed: bool = False


class _TopicHttp(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    default_healthy_retry_policy: HealthyRetryPolicy | None = None
    default_sickly_retry_policy: None = None
    disable_subscription_overrides: bool = False
    default_throttle_policy: _Throttle | None = None
    default_request_policy: _Request | None = None


class _Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    http: _TopicHttp = _TopicHttp()


class DeliveryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP subscription's effective policy."""

    retries: HealthyRetryPolicy | None
    """None if set nowhere"""
    max_per_second: int | None = None
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
        max_per_second=throttle.max_receives_per_second,
        content_type=request.header_content_type,
    )


MAIL_DELAYS: Sequence[float] = (
    *[10.0] * 2,
    *HealthyRetryPolicy(
        min_delay_target=10, max_delay_target=600, num_retries=10, backoff_function="exponential"
    ).delays(),
    *[600.0] * 38,
)
"""seconds; SNS's for SMTP, some six hours in all"""


def _read(text: str | None, policy_type: type[T]) -> T:
    try:
        return msgspec.json.decode(text or "{}", type=policy_type)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"DeliveryPolicy: {error}") from None
