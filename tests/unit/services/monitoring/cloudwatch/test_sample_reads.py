"""ListMetrics."""

from datetime import UTC, datetime, timedelta

import pytest

from sagehen.services.monitoring.cloudwatch import operations as listing

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def names(answer):
    return [one["MetricName"] for one in answer["Metrics"]]


def test_metrics_are_found_by_what_they_are(cloudwatch):
    cloudwatch.put("a", 1, EndpointName="e")
    cloudwatch.put("b", 1, EndpointName="e", VariantName="v")
    cloudwatch.put("b", 1, EndpointName="f", unit="Count")
    cloudwatch.put("b", 1, EndpointName="f", unit="Bytes")
    assert names(cloudwatch.ListMetrics()) == ["a", "b", "b"]
    assert names(cloudwatch.ListMetrics(Namespace="Mine", MetricName="b")) == ["b", "b"]
    assert names(cloudwatch.ListMetrics(Namespace="mine")) == []
    of_e = {"Name": "EndpointName", "Value": "e"}
    assert names(cloudwatch.ListMetrics(Dimensions=[of_e])) == ["a", "b"]
    assert names(cloudwatch.ListMetrics(Dimensions=[of_e, {"Name": "VariantName"}])) == ["b"]
    assert names(cloudwatch.ListMetrics(Dimensions=[{"Name": "VariantName", "Value": "w"}])) == []
    (found,) = cloudwatch.ListMetrics(MetricName="a")["Metrics"]
    assert found == {"Namespace": "Mine", "MetricName": "a", "Dimensions": [of_e]}


def test_metrics_that_have_had_values_lately(cloudwatch):
    cloudwatch.put("old", 1)
    cloudwatch.clock.seconds += 3.5 * 3600
    cloudwatch.put("new", 1, at=NOON + timedelta(hours=3.5))
    assert names(cloudwatch.ListMetrics()) == ["old", "new"]
    assert names(cloudwatch.ListMetrics(RecentlyActive="PT3H")) == ["new"]
    cloudwatch.clock.seconds += 13.9 * 86_400
    assert names(cloudwatch.ListMetrics()) == ["new"]


def test_pages(cloudwatch, monkeypatch):
    monkeypatch.setattr(listing, "PAGE", 2)
    for number in range(5):
        cloudwatch.put(f"m{number}", 1)
    found, token, pages = [], {}, 0
    while True:
        page = cloudwatch.ListMetrics(**token)
        found += names(page)
        pages += 1
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert (found, pages) == (["m0", "m1", "m2", "m3", "m4"], 3)


@pytest.mark.parametrize(
    "token", ["", "?", "\u00e9", "bm8=", "LTE=", "MQ", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5"]
)
def test_tokens_that_are_none_of_ours(cloudwatch, token):
    assert cloudwatch.refuses("ListMetrics", NextToken=token) == (
        "InvalidParameterValue",
        "Request parameter NextToken is invalid",
    )


def test_accounts(cloudwatch):
    cloudwatch.put("m", 1)
    answer = cloudwatch.ListMetrics(IncludeLinkedAccounts=True, OwningAccount="000000000000")
    assert answer["OwningAccounts"] == ["000000000000"]
    assert (
        cloudwatch.refuses("ListMetrics", OwningAccount="111111111111")[0]
        == "InvalidParameterValue"
    )


def test_more_filters_than_there_may_be(cloudwatch):
    filters = [{"Name": f"d{number}"} for number in range(11)]
    assert cloudwatch.refuses("ListMetrics", Dimensions=filters)[0] == "ValidationError"
