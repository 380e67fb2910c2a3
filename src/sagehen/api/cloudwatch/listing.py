"""ListMetrics: which metrics there are."""

import base64
import binascii
from itertools import islice
from typing import Any

from sagehen.api.call import Call
from sagehen.api.cloudwatch.refusals import invalid
from sagehen.store.sample_reads import MetricName, metrics
from sagehen.wire.faults import AwsError

__all__ = ["list_metrics"]

PAGE = 500
_LISTED_SECONDS = 14 * 86_400
_RECENT_SECONDS = 3 * 3600


def list_metrics(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    """Those that have had a value within two weeks, with RecentlyActive within three hours."""
    if params.get("OwningAccount", call.settings.account_id) != call.settings.account_id:
        raise invalid("OwningAccount: there is no other account here.")
    seconds = _RECENT_SECONDS if "RecentlyActive" in params else _LISTED_SECONDS
    since = int((call.clock.now() - seconds) // 60)
    wanted = params.get("Dimensions", [])
    with call.database.read() as connection:
        found = metrics(
            connection,
            _read_token(params.get("NextToken")),
            params.get("Namespace"),
            params.get("MetricName"),
            since,
        )
        page = list(islice((one for one in found if _has(one, wanted)), PAGE + 1))
    answer: dict[str, Any] = {"Metrics": [_summary(one) for one in page[:PAGE]]}
    if len(page) > PAGE:
        answer["NextToken"] = _token(page[PAGE - 1].place)
    if params.get("IncludeLinkedAccounts"):
        answer["OwningAccounts"] = [call.settings.account_id] * len(page[:PAGE])
    return answer


def _has(metric: MetricName, wanted: list[dict[str, str]]) -> bool:
    """All dimensions asked for, by name or by name and value; it may have others too."""
    dimensions = dict(metric.dimensions)
    return all(
        one["Name"] in dimensions
        and one.get("Value", dimensions[one["Name"]]) == dimensions[one["Name"]]
        for one in wanted
    )


def _summary(metric: MetricName) -> dict[str, Any]:
    return {
        "Namespace": metric.namespace,
        "MetricName": metric.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in metric.dimensions],
    }


def _token(place: int) -> str:
    return base64.urlsafe_b64encode(str(place).encode()).decode()


def _read_token(token: str | None) -> int:
    if token is None:
        return 0
    try:
        text = base64.urlsafe_b64decode(token.encode()).decode("ascii")
        if not text.isdecimal() or len(text) > 18:
            raise _bad_token()
        return int(text)
    except (binascii.Error, ValueError):
        raise _bad_token() from None


def _bad_token() -> AwsError:
    return invalid("Request parameter NextToken is invalid")
