"""Inference services: their settings as properties."""

from sagehen.apply.plan import Action, actual_key, make_plan
from sagehen.apply.resources import KINDS
from sagehen.apply.stack import StackContent, StackResource
from sagehen.apply.template.desired import Desired


def read(kind, **properties):
    return KINDS[kind].read("X", properties)


def test_a_services_properties_are_its_settings():
    found = read(
        "Sagehen::InferenceService",
        S3Bucket="bucket",
        WhiteList="[model_a, model_b]",
        Limit="2",
        RequireApiKey="false",
        WhenFull="queue",
        Types={"model_a": {"Image": "i", "Hyperparameters": {"k": "v"}}},
    )
    assert found == {
        "S3Bucket": "bucket",
        "WhiteList": ["model_a", "model_b"],
        "Limit": 2,
        "RequireApiKey": False,
        "WhenFull": "queue",
        "Types": {"model_a": {"Image": "i", "Hyperparameters": {"k": "v"}}},
    }


def test_an_inference_service_whose_settings_are_none_any_more_is_put_again():
    given = {"s3_bucket": "bucket", "types": "no more valid"}

    class Server:
        def own(self, method, *path):
            assert (method, path) == ("GET", ("inference-services", "prod"))
            return {"given": given, "settings": None, "problem": "why", "closing": False}

    service = {
        "logical_id": "Service",
        "type": "Sagehen::InferenceService",
        "name": "prod",
        "properties": {"S3Bucket": "bucket"},
        "attributes": {},
        "needs": (),
        "deletion_policy": "Delete",
    }
    desired = Desired(**service, is_named=True, update_replace_policy="Delete")
    live = desired.kind.look(Server(), "prod", desired.properties)
    content = StackContent(resources={"Service": StackResource(**service)})
    plan = make_plan([desired], content, {actual_key(desired): live})
    assert [step.action for step in plan.steps] == [Action.UPDATE]
