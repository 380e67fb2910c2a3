"""The real client of SageMaker's runtime."""

import pytest
from botocore.exceptions import ClientError


async def test_a_prediction(house, variant):
    house.route(
        variant(
            await house.fake(
                lambda asked: (
                    200,
                    {"Content-Type": "text/csv", "X-Amzn-SageMaker-Custom-Attributes": "a=b"},
                    b"42.5",
                )
            )
        )
    )
    await house.start()
    answer = await house.boto(
        "invoke_endpoint",
        EndpointName="price",
        Body=b"1,2",
        ContentType="text/csv",
        InferenceId="one of many",
    )
    assert answer["Body"] == b"42.5"
    assert answer["ContentType"] == "text/csv"
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    assert answer["CustomAttributes"] == "a=b"
    assert len(answer["ResponseMetadata"]["RequestId"]) == 36


async def test_a_model_error_has_its_members(house, variant):
    house.route(variant(await house.fake(lambda asked: (500, {}, b"boom"))))
    await house.start()
    with pytest.raises(ClientError) as caught:
        await house.boto("invoke_endpoint", EndpointName="price", Body=b"1,2")
    answer = caught.value.response
    assert type(caught.value).__name__ == "ModelError"
    assert answer["Error"]["Code"] == "ModelError"
    assert answer["Error"]["Message"].startswith("Received server error (500) from primary")
    assert answer["OriginalStatusCode"] == 500
    assert answer["OriginalMessage"] == "boom"
    assert answer["LogStreamArn"].endswith("/aws/sagemaker/Endpoints/price")
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 424


@pytest.mark.parametrize("name", ["nobody", "a/b c", "x" * 64])
async def test_a_validation_error(house, name):
    house.table()
    await house.start()
    with pytest.raises(ClientError) as caught:
        await house.boto("invoke_endpoint", EndpointName=name, Body=b"")
    assert type(caught.value).__name__ == "ValidationError"
    assert name in str(caught.value)


async def test_a_large_body_there_and_back(house, variant, echo):
    house.route(variant(await house.fake(echo)))
    await house.start()
    body = bytes(range(256)) * 20_000
    answer = await house.boto("invoke_endpoint", EndpointName="price", Body=body)
    assert answer["Body"] == body


async def test_an_oversize_body(house, variant, echo):
    house.route(variant(await house.fake(echo)))
    await house.start(max_invocation_body_bytes=1000)
    with pytest.raises(ClientError, match="has oversize body") as caught:
        await house.boto("invoke_endpoint", EndpointName="price", Body=bytes(8_000_000))
    assert type(caught.value).__name__ == "ValidationError"


async def test_asynchronous_invocations_while_control_is_away(house):
    control = await house.control(lambda asked: (202, {}, b"{}"))
    await house.start()
    request = {"EndpointName": "price", "InputLocation": "s3://bucket/key"}
    await house.boto("invoke_endpoint_async", **request)
    house.home.control_socket.unlink()
    control.hang_up()
    with pytest.raises(ClientError, match="control process does not answer") as caught:
        await house.boto("invoke_endpoint_async", **request)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
