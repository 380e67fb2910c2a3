import pytest

from sagehen.frame.arns import ArnMaker, partition_of


@pytest.mark.parametrize(
    ("region", "partition"),
    [
        ("us-east-1", "aws"),
        ("eu-central-1", "aws"),
        ("cn-north-1", "aws-cn"),
        ("cn-northwest-1", "aws-cn"),
        ("us-gov-west-1", "aws-us-gov"),
        ("us-gov-east-1", "aws-us-gov"),
    ],
)
def test_every_arn_has_the_partition_of_its_region(region: str, partition: str) -> None:
    assert partition_of(region) == partition
    arns = ArnMaker("000000000000", region)
    made = [
        arns.sagemaker("model", "M"),
        arns.sns("t"),
        arns.sqs("q"),
        arns.event_rule("r"),
        arns.event_bus("default"),
        arns.event_resource("connection", "c", "1"),
        arns.connection_secret("c", "arn"),
        arns.log_group("/aws/sagemaker/Endpoints/e"),
        arns.role("r"),
        arns.role_session("r", "s"),
    ]
    assert {arn.split(":")[1] for arn in made} == {partition}


def test_a_partition_that_is_given_wins() -> None:
    assert ArnMaker("000000000000", "cn-north-1", "aws").sns("t") == (
        "arn:aws:sns:cn-north-1:000000000000:t"
    )
