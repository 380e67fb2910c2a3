"""The names on the agent's socket, which gateways and control of another version may read."""

import msgspec
import pytest

from sagehen.agent.messages import LoadedModel, LoadRequest, TouchRequest


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            LoadRequest(target_model="a.tar.gz"),
            '{"target_model":"a.tar.gz","wait_seconds":60,"short_of_memory":false}',
        ),
        (
            LoadedModel(model_name="abc", hit=True, wait_microseconds=5),
            '{"model_name":"abc","hit":true,"wait_microseconds":5,"keep":true}',
        ),
        (
            TouchRequest(model_names=("abc",), given_back={"abc": 2}),
            '{"model_names":["abc"],"given_back":{"abc":2}}',
        ),
    ],
)
def test_the_wire_names(message: msgspec.Struct, text: str) -> None:
    assert msgspec.json.encode(message).decode() == text
    assert msgspec.json.decode(text, type=type(message)) == message


def test_what_is_left_out_has_its_default() -> None:
    assert msgspec.json.decode("{}", type=TouchRequest) == TouchRequest()
