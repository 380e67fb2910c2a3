"""sts and iam: enough for the SageMaker SDK to find a role."""

import json
import urllib.parse

from sagehen.services.identity import iam, sts


def test_caller_is_a_role_session(server):
    answer = sts.OPERATIONS["GetCallerIdentity"](server.call(), {})
    assert answer["Account"] == "000000000000"
    assert answer["Arn"] == "arn:aws:sts::000000000000:assumed-role/SagehenRole/sagehen"
    assert answer["UserId"].endswith(":sagehen")


def test_every_role_exists_and_trusts_sagemaker(server):
    role = iam.OPERATIONS["GetRole"](server.call(), {"RoleName": "Any-Role"})["Role"]
    assert role["Arn"] == "arn:aws:iam::000000000000:role/Any-Role"
    assert role["RoleId"] == iam.role_id("Any-Role")
    assert len(role["RoleId"]) == 21
    trust = json.loads(urllib.parse.unquote(role["AssumeRolePolicyDocument"]))
    assert trust["Statement"][0]["Principal"] == {"Service": "sagemaker.amazonaws.com"}
