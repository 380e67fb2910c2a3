"""Roles: every one exists, and may do everything."""

import json
import urllib.parse

from sagehen.services.identity import iam


def test_every_role_exists_and_trusts_sagemaker(server):
    role = iam.OPERATIONS["GetRole"](server.call(), {"RoleName": "Any-Role"})["Role"]
    assert role["Arn"] == "arn:aws:iam::000000000000:role/Any-Role"
    assert role["RoleId"] == iam.role_id("Any-Role")
    assert len(role["RoleId"]) == 21
    trust = json.loads(urllib.parse.unquote(role["AssumeRolePolicyDocument"]))
    assert trust["Statement"][0]["Principal"] == {"Service": "sagemaker.amazonaws.com"}


def test_every_action_on_every_resource_is_allowed(server):
    simulate = iam.OPERATIONS["SimulatePrincipalPolicy"]
    answer = simulate(server.call(), {"ActionNames": ["a", "b"], "ResourceArns": ["x", "y"]})
    decisions = {
        (one["EvalActionName"], one["EvalResourceName"], one["EvalDecision"])
        for one in answer["EvaluationResults"]
    }
    assert decisions == {(action, arn, "allowed") for action in "ab" for arn in "xy"}
    (alone,) = simulate(server.call(), {"ActionNames": ["a"]})["EvaluationResults"]
    assert alone["EvalResourceName"] == "*"
