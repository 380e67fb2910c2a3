"""SNS's pages: 100 at a time, in the order of their ARNs."""

import base64
import binascii
from typing import Any

from sagehen.api.sns.refusals import invalid

__all__ = ["PAGE_SIZE", "after", "page_of"]

PAGE_SIZE = 100
"""Read one more: then it is known whether there is a next page."""


def after(params: dict[str, Any]) -> str:
    """The ARN that the page begins behind; raises AwsError where NextToken is none of ours."""
    token = params.get("NextToken", "")
    try:
        arn = base64.urlsafe_b64decode(token).decode()
    except (binascii.Error, ValueError):
        raise invalid("NextToken") from None
    if arn and not arn.startswith("arn:"):
        raise invalid("NextToken")
    return arn


def page_of(member: str, found: list[dict[str, str]], arns: list[str]) -> dict[str, Any]:
    """The answer with one page of `found`, which may be one longer; `arns` are theirs."""
    answer: dict[str, Any] = {member: found[:PAGE_SIZE]}
    if len(found) > PAGE_SIZE:
        answer["NextToken"] = base64.urlsafe_b64encode(arns[PAGE_SIZE - 1].encode()).decode()
    return answer
