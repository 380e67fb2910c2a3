"""The partition that a state's ARNs have already."""

from sagehen.app.partition import stored_partition
from sagehen.frame import tags
from sagehen.state.database import Database


def test_a_state_without_arns_has_none(any_database: Database) -> None:
    with any_database.read() as connection:
        assert stored_partition(connection, "cn-north-1") is None


def test_it_is_that_of_an_arn_of_the_region(any_database: Database) -> None:
    with any_database.write() as connection:
        tags.put(connection, "arn:aws:sns:us-east-1:000000000000:a", {"k": "v"})
        tags.put(connection, "arn:aws-cn:sns:cn-north-1:000000000000:a", {"k": "v"})
    with any_database.read() as connection:
        assert stored_partition(connection, "cn-north-1") == "aws-cn"
        assert stored_partition(connection, "us-east-1") == "aws"
        assert stored_partition(connection, "eu-west-1") is None
