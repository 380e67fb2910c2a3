"""Generated names: they fit, and follow the content where the type asks for it."""

from sagehen.apply.resources import KINDS
from sagehen.apply.template.desired import content_digits, generated_name


def test_generated_names():
    assert generated_name("stack", "Model", "12345678", 63) == "stack-Model-12345678"
    long = generated_name("s" * 128, "L" * 255, "12345678", 63)
    assert len(long) == 63
    assert long.endswith("L-12345678")
    assert generated_name("s" * 128, "L", "12345678", 63).endswith("s-L-12345678")
    for stack in ("a", "b-" * 40, "c" * 100):
        for logical_id in ("X", "Y" * 50, "Z" * 255):
            assert len(generated_name(stack, logical_id, "12345678", 63)) <= 63


def test_a_name_of_content_is_another_one_with_it():
    one = {"PrimaryContainer": {"Image": "a"}, "EnableNetworkIsolation": False}
    assert content_digits(one) == content_digits(dict(reversed(one.items())))
    assert content_digits(one) != content_digits({**one, "EnableNetworkIsolation": True})
    kind = KINDS["AWS::SageMaker::Model"]
    assert kind.identity({**one, "ModelName": "m", "Tags": []}) == one
