"""InvokeEndpointAsync from the 202 to the notice, by real boto3 clients of a real server."""

import base64
import json
import sqlite3
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from support.async_bench import AsyncBench, lines_of

SIZE = 48 * 2**20


@pytest.fixture(scope="module")
def bench(deploy) -> AsyncBench:
    """With the endpoint `async`, which does as it is told."""
    made = AsyncBench(deploy)
    described = made.endpoint("async", TS_MAX_REQUEST_SIZE=str(2 * SIZE))
    assert described["EndpointStatus"] == "InService"
    return made


def test_an_answer(bench: AsyncBench) -> None:
    called = bench.call("async", number=7, InferenceId="a b/../c", Accept="application/x-answer")
    assert json.loads(called.output()) == {"number": 7}
    output, _ = called.objects()
    assert output is not None
    assert output["ContentType"] == "application/x-answer"
    (told,) = bench.notices(called)
    assert told["invocationStatus"] == "Completed"
    assert told["responseParameters"] == {
        "contentType": "application/x-answer",
        "outputLocation": called.location,
    }
    assert json.loads(base64.b64decode(told["responseBody"]["content"])) == {"number": 7}
    assert (told["inferenceId"], told["eventName"]) == ("a b/../c", "InferenceResult")


def test_an_inline_body(bench: AsyncBench) -> None:
    runtime = bench.deploy.runtime
    if (
        "Body"
        not in runtime.meta.service_model.operation_model("InvokeEndpointAsync").input_shape.members
    ):
        pytest.skip("this boto3 has no inline body")
    answer = runtime.invoke_endpoint_async(EndpointName="async", Body=b"as it is")
    key = answer["OutputLocation"].removeprefix("s3://async-out/")
    bench.s3.get_waiter("object_exists").wait(
        Bucket="async-out", Key=key, WaiterConfig={"Delay": 0.1, "MaxAttempts": 600}
    )
    assert bench.get(answer["OutputLocation"])["Body"] == b"as it is"


def test_an_error_of_the_model(bench: AsyncBench) -> None:
    called = bench.call("async", fail="no such row")
    assert "no such row" in called.failure()
    (told,) = bench.notices(called)
    assert told["invocationStatus"] == "Failed"
    assert "Received server error (500) from model. See" in told["failureReason"]
    assert told["failureLocation"] == called.failure_location
    logs = list((bench.server.home / "logs/endpoints/async").rglob("data-log.log"))
    assert any(called.inference_id in log.read_text() for log in logs)


def test_an_input_that_is_not_there(bench: AsyncBench) -> None:
    called = bench.call("async", "s3://async-in/missing")
    assert "There is no object missing" in called.failure()
    (told,) = bench.notices(called)
    assert told["failureReason"].startswith("ClientError: The input at s3://async-in/missing")


def test_a_container_that_takes_too_long(bench: AsyncBench, gates: Path) -> None:
    gate = gates / "gate"
    called = bench.call("async", gate=gate, InvocationTimeoutSeconds=1)
    assert "timed out" in called.failure()
    gate.touch()
    assert json.loads(bench.call("async", number=1).output()) == {"number": 1}


def test_a_container_that_dies_is_asked_again(bench: AsyncBench, gates: Path) -> None:
    called = bench.call("async", number=3, die=gates / "died")
    assert json.loads(called.output()) == {"number": 3}
    assert len(bench.notices(called)) == 1


def test_a_large_input_and_output_are_streamed(bench: AsyncBench) -> None:
    control = bench.server.pid("control")
    location = bench.put(b"x" * SIZE)
    forget_peak(control)
    before = peak_bytes(control)
    called = bench.call("async", location)
    output = called.output()
    assert len(output) == SIZE
    assert peak_bytes(control) - before < SIZE / 2


def forget_peak(pid: int) -> None:
    """Begin anew: what others had it do may have taken more. See proc_pid_clear_refs(5)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_too_late_and_cancelled_without_any_instance(bench: AsyncBench) -> None:
    """At zero instances requests are accepted and wait; raised again, they are answered."""
    bench.endpoint("zero")
    scale(bench, "zero", 0)
    late, kept = bench.call("zero", number=1), bench.call("zero", number=2)
    # As if it had waited for so long: a minute is the least that can be asked for.
    change(bench, "UPDATE async_requests SET end_at = 1 WHERE inference_id = ?", late.inference_id)
    assert "RequestTTLSeconds" in late.failure()
    (told,) = bench.notices(late)
    assert told["failureReason"].startswith("ClientError: The request waited in the queue")
    assert not kept.has_ended
    scale(bench, "zero", 1)
    assert json.loads(kept.output()) == {"number": 2}


def scale(bench: AsyncBench, name: str, count: int) -> None:
    bench.deploy.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName=name,
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": count}],
    )
    assert bench.deploy.settled(name)["EndpointStatus"] == "InService"


def change(bench: AsyncBench, statement: str, *given: object) -> None:
    connection = sqlite3.connect(bench.server.home / "state.db", timeout=120)
    with connection:
        connection.execute(statement, given)
    connection.close()


def test_an_update_keeps_the_queue_and_what_is_worked_on(
    bench: AsyncBench, gates: Path, wait_until
) -> None:
    gate, began = gates / "gate", gates / "began"
    bench.endpoint("updated", concurrency=1)
    running = bench.call("updated", number=1, gate=gate, began=began)
    wait_until(lambda: lines_of(began) == ["1"])
    waiting = [bench.call("updated", number=number) for number in (2, 3)]
    bench.config("updated-2", concurrency=1)
    bench.deploy.sagemaker.update_endpoint(EndpointName="updated", EndpointConfigName="updated-2")
    assert bench.deploy.settled("updated")["EndpointStatus"] == "InService"
    # The new instance works on the queue, while the old one still has its request.
    assert [json.loads(one.output())["number"] for one in waiting] == [2, 3]
    assert not running.has_ended
    gate.touch()
    assert json.loads(running.output()) == {"number": 1}
    assert lines_of(began) == ["1"], "it was asked once"


def test_what_waits_for_a_deleted_endpoint_fails(
    bench: AsyncBench, gates: Path, wait_until
) -> None:
    bench.endpoint("deleted", concurrency=1)
    began = gates / "began"
    calls = [
        bench.call("deleted", number=number, gate=gates / "never", began=began)
        for number in range(4)
    ]
    wait_until(lambda: bool(lines_of(began)))
    bench.deploy.sagemaker.delete_endpoint(EndpointName="deleted")
    assert all("was deleted" in called.failure() for called in calls)
    for called in calls:
        (told,) = bench.notices(called)
        assert told["failureReason"].startswith("ClientError: The endpoint deleted was deleted")
    with pytest.raises(ClientError, match="not found"):
        bench.call("deleted", number=9)
