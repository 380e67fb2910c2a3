"""GetCallerIdentity: enough for the SageMaker SDK to find a role."""

from sagehen.services.identity import sts


def test_caller_is_a_role_session(server):
    answer = sts.OPERATIONS["GetCallerIdentity"](server.call(), {})
    assert answer["Account"] == "000000000000"
    assert answer["Arn"] == "arn:aws:sts::000000000000:assumed-role/SagehenRole/sagehen"
    assert answer["UserId"].endswith(":sagehen")
