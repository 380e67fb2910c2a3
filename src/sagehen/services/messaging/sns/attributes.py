"""Attributes of SNS topics and subscriptions."""

from collections.abc import Callable
from typing import Any

import msgspec

from sagehen.base.errors import Invalid
from sagehen.services.messaging.filters.policy import ATTRIBUTES, BODY, read_policy
from sagehen.services.messaging.sns.delivery_policy import (
    DEFAULT_CONTENT_TYPE,
    HealthyRetryPolicy,
    effective_policy,
    read_subscription_policy,
    read_topic_policy,
)
from sagehen.services.messaging.sns.errors import invalid
from sagehen.services.messaging.sns.records import SubscriptionRecord, TopicRecord
from sagehen.services.messaging.sqs.records import QUEUE_ARN, DeadLetters
from sagehen.services.messaging.webhooks import read_secret
from sagehen.wire.errors import AwsError

__all__ = [
    "check_subscription_attributes",
    "check_topic_attributes",
    "effective_subscription_policy",
    "effective_topic_policy",
]

MAX_DISPLAY_NAME_LENGTH = 100
MAX_VALUE_BYTES = 256 * 1024 + 1024

BY_HTTP = ("http", "https", "webhook")

Check = Callable[[str], object]


def check_topic_attributes(attributes: dict[str, str], within: str = "") -> dict[str, str]:
    """Checks attributes and drops empty values, which unset them; raises AwsError.

    Args:
        within: the request parameter, for messages.
    """
    return _checked(attributes, _TOPIC_CHECKS, within)


def check_subscription_attributes(
    attributes: dict[str, str], protocol: str, within: str = ""
) -> dict[str, str]:
    """Checks attributes, also against the protocol; raises AwsError."""
    checked = _checked(attributes, _SUBSCRIPTION_CHECKS, within)
    for name, protocols in _ONLY_FOR.items():
        if name in checked and protocol not in protocols:
            raise invalid(name, f"{name} is not supported for protocol type [{protocol}]")
    _check_filter(checked, within)
    return checked


def _checked(attributes: dict[str, str], checks: dict[str, Check], within: str) -> dict[str, str]:
    for name, value in attributes.items():
        if name not in checks:
            built = ", ".join(sorted(checks))
            raise invalid("AttributeName", f"Sagehen does not have {name[:64]}; it has {built}")
        if value or checks[name] is _flag:
            _check(name, value, checks[name], within)
    return {
        name: value.lower() if checks[name] is _flag else value
        for name, value in attributes.items()
        if value
    }


def _check(name: str, value: str, check: Check, within: str) -> None:
    if len(value.encode()) > MAX_VALUE_BYTES:
        raise invalid(name, f"it is over {MAX_VALUE_BYTES} bytes")
    try:
        check(value)
    except (Invalid, msgspec.MsgspecError, RecursionError) as error:
        raise _wrong(name, error, within) from None


def _wrong(name: str, error: Exception, within: str) -> AwsError:
    return invalid(within, f"{name}: {error}") if within else invalid(f"{name}: {error}")


def _check_filter(attributes: dict[str, str], within: str) -> None:
    """The scope decides how a policy is read."""
    policy = attributes.get("FilterPolicy")
    if policy:
        try:
            read_policy(policy, attributes.get("FilterPolicyScope", ATTRIBUTES))
        except Invalid as error:
            raise _wrong("FilterPolicy", error, within) from None


def _one_of(*allowed: str) -> Check:
    def check(value: str) -> None:
        if value not in allowed:
            raise Invalid(f"Invalid value [{value[:64]}]. Allowed values are: {', '.join(allowed)}")

    return check


def _flag(value: str) -> None:
    if value.lower() not in ("true", "false"):
        raise Invalid(f"Invalid value [{value[:64]}]. Must be true or false.")


def _scope(value: str) -> None:
    if value not in (ATTRIBUTES, BODY):
        raise Invalid(f"Invalid value [{value[:64]}]. Please use either {BODY} or {ATTRIBUTES}")


def _json(value: str) -> None:
    if not isinstance(msgspec.json.decode(value), dict):
        raise Invalid("it must be a JSON object")


def _short(value: str) -> None:
    if len(value) > MAX_DISPLAY_NAME_LENGTH:
        raise Invalid(f"it has at most {MAX_DISPLAY_NAME_LENGTH} characters")
    if not value.isprintable():
        raise Invalid("it has line breaks or other characters that cannot be printed")


def _dead_letters(value: str) -> None:
    target = msgspec.json.decode(value, type=DeadLetters).dead_letter_target_arn
    if not QUEUE_ARN.fullmatch(target):
        raise Invalid("deadLetterTargetArn must be the ARN of an SQS queue that is not FIFO")


def _any(_: str) -> None:
    """Accepts any value: the attribute is stored but has no effect."""


_TOPIC_CHECKS: dict[str, Check] = {
    "DeliveryPolicy": read_topic_policy,
    "DisplayName": _short,
    "KmsMasterKeyId": _any,
    "Policy": _json,
    "SignatureVersion": _one_of("1", "2"),
    "TracingConfig": _one_of("PassThrough", "Active"),
}
_SUBSCRIPTION_CHECKS: dict[str, Check] = {
    "DeliveryPolicy": read_subscription_policy,
    "FilterPolicy": _json,
    "FilterPolicyScope": _scope,
    "RawMessageDelivery": _flag,
    "RedrivePolicy": _dead_letters,
    "WebhookSecret": read_secret,
}
_ONLY_FOR = {
    "DeliveryPolicy": BY_HTTP,
    "RawMessageDelivery": ("http", "https", "sqs"),
    "WebhookSecret": ("webhook",),
}


def effective_topic_policy(topic: TopicRecord) -> str:
    policy = read_topic_policy(topic.attributes.get("DeliveryPolicy")).http
    effective = effective_policy(topic.attributes.get("DeliveryPolicy"), None)
    http: dict[str, Any] = {
        "defaultHealthyRetryPolicy": effective.retries or HealthyRetryPolicy(),
        "disableSubscriptionOverrides": policy.disable_subscription_overrides,
        "defaultRequestPolicy": {
            "headerContentType": effective.content_type or DEFAULT_CONTENT_TYPE
        },
    }
    if effective.max_per_second is not None:
        http["defaultThrottlePolicy"] = {"maxReceivesPerSecond": effective.max_per_second}
    return msgspec.json.encode({"http": http}).decode()


def effective_subscription_policy(topic: TopicRecord, subscription: SubscriptionRecord) -> str:
    effective = effective_policy(
        topic.attributes.get("DeliveryPolicy"), subscription.attributes.get("DeliveryPolicy")
    )
    policy: dict[str, Any] = {
        "healthyRetryPolicy": effective.retries or HealthyRetryPolicy(),
        "sicklyRetryPolicy": None,
        "throttlePolicy": None,
        "requestPolicy": {"headerContentType": effective.content_type or DEFAULT_CONTENT_TYPE},
        "guaranteed": False,
    }
    if effective.max_per_second is not None:
        policy["throttlePolicy"] = {"maxReceivesPerSecond": effective.max_per_second}
    return msgspec.json.encode(policy).decode()
