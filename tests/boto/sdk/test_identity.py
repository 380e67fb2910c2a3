"""The SDK looks for its role by sts and iam."""

import boto3
import pytest

# The SDK warns of itself, and of much that it imports.
pytestmark = pytest.mark.filterwarnings("ignore")


class Here(boto3.Session):
    """The SDK names AWS's own address of sts, which no setting overrides."""

    def client(self, *arguments, **members):
        members.pop("endpoint_url", None)
        return super().client(*arguments, **members)


def test_it_finds_its_role(sdk):
    session = sdk.Session(boto_session=Here())
    assert sdk.get_execution_role(session) == "arn:aws:iam::000000000000:role/SagehenRole"
    assert session.expand_role("Another") == "arn:aws:iam::000000000000:role/Another"
    assert session.account_id() == "000000000000"
