"""CloudWatch's metrics through the whole server, by clients of each age."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from support.protocols import speaking

PROTOCOLS = ["json", "smithy-rpc-v2-cbor", "query"]
HOST = "/aws/sagemaker/Endpoints"
NAMES = ["SampleCount", "Sum", "Minimum", "Maximum"]
IN_ONE = {"SampleCount": sum, "Sum": sum, "Minimum": min, "Maximum": max, "Average": max}
"""Of two days, where midnight has come between."""


@pytest.fixture(scope="module")
def clients(aws, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    others = {name: speaking(aws, "cloudwatch", name, folder) for name in PROTOCOLS}
    assert others["query"].meta.service_model.resolved_protocol == "query"
    return {**others, "today's": aws.client("cloudwatch")}


@pytest.fixture(params=["today's", *PROTOCOLS])
def cloudwatch(clients, request):
    return clients[request.param]


@pytest.fixture
def namespace():
    return f"Mine/{uuid.uuid4()}"


def lately(**more):
    now = datetime.now(UTC)
    return {"StartTime": now - timedelta(hours=1), "EndTime": now + timedelta(hours=1), **more}


class Endpoint:
    """What CloudWatch has of one."""

    def __init__(self, cloudwatch, name):
        self.cloudwatch = cloudwatch
        self.own = [{"Name": "EndpointName", "Value": name}]
        self.variants = [{"Name": "VariantName", "Value": "AllTraffic"}, *self.own]

    def seen(self, metric, statistic, dimensions=None, namespace="AWS/SageMaker"):
        """All values in one."""
        found = self.cloudwatch.get_metric_statistics(
            **lately(Namespace=namespace, MetricName=metric),
            Dimensions=dimensions or self.variants,
            Period=86_400,
            Statistics=[statistic],
        )
        values = [point[statistic] for point in found["Datapoints"]]
        return [IN_ONE[statistic](values)] if values else []

    def names(self):
        listed = self.cloudwatch.list_metrics(Namespace="AWS/SageMaker", Dimensions=self.own)
        return {one["MetricName"] for one in listed["Metrics"]}


@pytest.fixture(scope="module")
def real_time(deploy, clients):
    """Called three times."""
    deploy.endpoint("measured")
    for _ in range(3):
        deploy.invoke("measured")
    return Endpoint(clients["today's"], "measured")


@pytest.fixture(scope="module")
def asynchronous(aws, deploy, clients):
    """Called three times, once with what it does not understand."""
    name = "measured-asynchronously"
    deploy.config(name)
    sagemaker, runtime = aws.client("sagemaker"), aws.client("sagemaker-runtime")
    (variant,) = sagemaker.describe_endpoint_config(EndpointConfigName=name)["ProductionVariants"]
    aws.client("s3").create_bucket(Bucket=name)
    sagemaker.create_endpoint_config(
        EndpointConfigName=f"{name}-async",
        ProductionVariants=[variant],
        AsyncInferenceConfig={"OutputConfig": {"S3OutputPath": f"s3://{name}/out"}},
    )
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=f"{name}-async")
    assert deploy.settled(name)["EndpointStatus"] == "InService"
    for body in (b"[1]", b"[2]", b"no json"):
        runtime.invoke_endpoint_async(EndpointName=name, ContentType="application/json", Body=body)
    return Endpoint(clients["today's"], name)


@pytest.fixture(scope="module", autouse=True)
def called_first(real_time, asynchronous):
    """What is sampled every few seconds is there by the time that the last tests ask for it."""


def test_values_go_there_and_come_back(cloudwatch, namespace):
    dimensions = [{"Name": "EndpointName", "Value": "e & <f>"}, {"Name": "V", "Value": "\" '"}]
    at = datetime.now(UTC) - timedelta(minutes=20)
    datum = {"MetricName": "m", "Dimensions": dimensions, "Unit": "Seconds", "Timestamp": at}
    cloudwatch.put_metric_data(
        Namespace=namespace,
        MetricData=[{**datum, "Value": 1.5}, {**datum, "Values": [2.0, 3.0], "Counts": [2, 1]}],
    )
    asked = lately(Namespace=namespace, MetricName="m", Dimensions=dimensions, Period=60)
    answer = cloudwatch.get_metric_statistics(**asked, Statistics=NAMES)
    (point,) = answer["Datapoints"]
    assert [point[name] for name in NAMES] == [4, 8.5, 1.5, 3]
    assert (answer["Label"], point["Unit"]) == ("m", "Seconds")
    assert point["Timestamp"].tzinfo is not None
    assert timedelta() <= at - point["Timestamp"] <= timedelta(minutes=2)
    answer = cloudwatch.get_metric_statistics(**asked, ExtendedStatistics=["p50", "p100"])
    (point,) = answer["Datapoints"]
    assert point["ExtendedStatistics"] == {"p50": pytest.approx(2, rel=0.02), "p100": 3}


def test_many_metrics_at_once(cloudwatch, namespace):
    data = [{"MetricName": f"m{number}", "Value": float(number)} for number in range(3)]
    cloudwatch.put_metric_data(Namespace=namespace, MetricData=data)
    queries = [
        {
            "Id": f"q{number}",
            "MetricStat": {
                "Metric": {"Namespace": namespace, "MetricName": f"m{number}"},
                "Period": 60,
                "Stat": "Maximum",
            },
        }
        for number in range(3)
    ]
    queries.append({"Id": "e", "Expression": "SUM(METRICS()) ^ 2", "Label": "All"})
    answer = cloudwatch.get_metric_data(MetricDataQueries=queries, **lately())
    told = {one["Id"]: one for one in answer["MetricDataResults"]}
    assert {name: one["Values"] for name, one in told.items()} == {
        "q0": [0],
        "q1": [1],
        "q2": [2],
        "e": [9],
    }
    assert (told["e"]["Label"], told["e"]["StatusCode"]) == ("All", "Complete")
    assert told["q0"]["Timestamps"] == told["e"]["Timestamps"]
    pages = cloudwatch.get_paginator("get_metric_data").paginate(
        MetricDataQueries=queries[:3], MaxDatapoints=1, **lately()
    )
    assert [one["Values"] for page in pages for one in page["MetricDataResults"]] == [[0], [1], [2]]


def test_metrics_are_listed(cloudwatch, namespace):
    dimension = {"Name": "d", "Value": "v"}
    data = [
        {"MetricName": f"m{number}", "Value": 1.0, "Dimensions": [dimension]}
        for number in range(600)
    ]
    # More than 10 KiB: it goes compressed.
    cloudwatch.put_metric_data(Namespace=namespace, MetricData=data)
    pages = cloudwatch.get_paginator("list_metrics").paginate(
        Namespace=namespace, Dimensions=[{"Name": "d"}], RecentlyActive="PT3H"
    )
    found = [one for page in pages for one in page["Metrics"]]
    assert len(found) == 600
    assert {one["MetricName"] for one in found} == {f"m{number}" for number in range(600)}
    assert found[0]["Dimensions"] == [dimension]


def test_refusals_are_the_clients_own_exceptions(cloudwatch, namespace):
    errors = cloudwatch.exceptions
    with pytest.raises(errors.InvalidParameterValueException) as caught:
        cloudwatch.put_metric_data(
            Namespace="AWS/SageMaker", MetricData=[{"MetricName": "m", "Value": 1.0}]
        )
    error = caught.value.response
    assert error["Error"]["Code"] == "InvalidParameterValue"
    assert "AWS/SageMaker" in error["Error"]["Message"]
    assert error["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert error["ResponseMetadata"]["RequestId"]
    asked = lately(Namespace=namespace, MetricName="m", Period=60)
    with pytest.raises(errors.InvalidParameterCombinationException):
        cloudwatch.get_metric_statistics(**asked)
    with pytest.raises(errors.InvalidParameterValueException):
        cloudwatch.list_metrics(NextToken="no")
    with pytest.raises(ClientError) as caught:
        cloudwatch.get_metric_statistics(**{**asked, "Namespace": ":"}, Statistics=["Sum"])
    assert caught.value.response["Error"]["Code"] == "ValidationError"


def test_dashboards_are_refused_by_name(cloudwatch):
    with pytest.raises(ClientError, match="cloudwatch:PutDashboard is not implemented") as caught:
        cloudwatch.put_dashboard(DashboardName="a", DashboardBody="{}")
    assert caught.value.response["Error"]["Code"] == "UnsupportedOperation"


def test_wrong_keys_are_told_in_querys_words(cloudwatch, monkeypatch):
    credentials = cloudwatch._request_signer._credentials
    monkeypatch.setattr(credentials, "secret_key", "wrong")
    with pytest.raises(ClientError) as caught:
        cloudwatch.list_metrics()
    assert caught.value.response["Error"]["Code"] == "SignatureDoesNotMatch"


def test_invocations_of_a_real_time_endpoint(real_time, wait_until):
    seen = real_time.seen
    wait_until(lambda: seen("Invocations", "Sum") == [3])
    assert seen("ModelLatency", "SampleCount") == [3]
    assert seen("OverheadLatency", "SampleCount") == [3]
    assert seen("Invocation4XXErrors", "Average") == [0]
    (latency,) = seen("ModelLatency", "Maximum")
    assert 10 < latency < 60e6
    wait_until(lambda: seen("MemoryUtilization", "Minimum", namespace=HOST))
    (memory,) = seen("MemoryUtilization", "Maximum", namespace=HOST)
    assert 0 < memory < 100
    assert real_time.names() >= {"Invocations", "InvocationsPerInstance"}


def test_an_asynchronous_endpoint(aws, asynchronous, wait_until):
    found = asynchronous
    for spelling in ("InvocationsProcesssed", "InvocationsProcessed"):
        wait_until(lambda spelling=spelling: found.seen(spelling, "Sum") == [3])
    assert found.seen("InvocationFailures", "Sum") == [1]
    assert sum(found.seen(f"Invocation{kind}XXErrors", "Sum")[0] for kind in "45") == 1
    assert found.seen("TimeInBacklog", "SampleCount") == [3]
    (total,), (backlog,) = (
        found.seen(metric, "Minimum") for metric in ("TotalProcessingTime", "TimeInBacklog")
    )
    assert total >= backlog >= 0
    wait_until(lambda: found.seen("ApproximateBacklogSize", "Minimum", found.own) == [0])
    assert found.seen("HasBacklogWithoutCapacity", "Maximum", found.own) == [0]
    assert not found.names() & {"Invocations", "OverheadLatency"}
    exposed = aws.get("/_sagehen/metrics").decode()
    labels = '{endpoint="measured-asynchronously",variant="AllTraffic"}'
    assert f"sagehen_async_invocations_processed_total{labels} 3.0" in exposed
    assert f"sagehen_async_total_processing_time_milliseconds_count{labels} 3.0" in exposed
    assert 'sagehen_approximate_backlog_size{endpoint="measured-asynchronously"} 0.0' in exposed
