"""InvokeEndpointWithResponseStream with the real client, a real server and a real script."""

import json
from contextlib import closing

import pytest
from botocore.exceptions import ClientError, EventStreamError

SCRIPT = """
import json, time
from pathlib import Path

def model_fn(model_dir): return None
def input_fn(body, content_type): return json.loads(body)

def predict_fn(wish, model):
    if wish.get("fails") == "early":
        raise ValueError("not a word")
    yield "one "
    go = Path(wish["folder"], "go")
    while not go.exists():
        time.sleep(0.001)
    if wish.get("fails") == "late":
        raise ValueError("no more")
    yield b"two "
    yield "three"
"""


@pytest.fixture(scope="module")
def words(deploy):
    """An endpoint that streams three words, the second when it is let."""
    assert deploy.endpoint("words", SCRIPT)["EndpointStatus"] == "InService"
    return deploy


def ask(words, folder, **wish):
    return words.runtime.invoke_endpoint_with_response_stream(
        EndpointName="words",
        Body=json.dumps({"folder": str(folder), **wish}),
        ContentType="application/json",
        Accept="text/plain",
    )


def payload(event):
    return event["PayloadPart"]["Bytes"]


def test_the_first_piece_comes_while_the_script_still_works(words, tmp_path):
    answer = ask(words, tmp_path)
    assert answer["ContentType"] == "text/plain"
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    events = iter(answer["Body"])
    assert payload(next(events)) == b"one "
    (tmp_path / "go").touch()
    assert b"".join(payload(event) for event in events) == b"two three"


def test_a_script_that_fails_in_the_middle_raises(words, tmp_path):
    with closing(ask(words, tmp_path, fails="late")["Body"]) as body:
        events = iter(body)
        assert payload(next(events)) == b"one "
        (tmp_path / "go").touch()
        with pytest.raises(EventStreamError, match="was lost before it had sent all") as caught:
            next(events)
    assert caught.value.response["Error"]["Code"] == "ModelStreamError"


def test_a_script_that_fails_before_its_first_piece_is_a_model_error(words, tmp_path):
    with pytest.raises(ClientError, match="not a word") as caught:
        ask(words, tmp_path, fails="early")
    assert type(caught.value).__name__ == "ModelError"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert caught.value.response["OriginalStatusCode"] == 500


def test_a_caller_who_leaves_frees_the_script(words, tmp_path):
    body = ask(words, tmp_path)["Body"]
    assert payload(next(iter(body))) == b"one "
    body.close()
    (tmp_path / "go").touch()
    answer = ask(words, tmp_path)["Body"]
    assert b"".join(payload(event) for event in answer) == b"one two three"


def test_invoke_endpoint_gives_the_pieces_as_one(words, tmp_path):
    (tmp_path / "go").touch()
    answer = words.invoke("words", json.dumps({"folder": str(tmp_path)}))
    assert answer == "one two three"


def test_invoke_endpoint_does_not_give_half_an_answer(words, tmp_path):
    (tmp_path / "go").touch()
    with pytest.raises(ClientError, match="could not get a response") as caught:
        words.invoke("words", json.dumps({"folder": str(tmp_path), "fails": "late"}))
    assert type(caught.value).__name__ == "ModelError"


def test_an_answer_that_is_not_in_pieces_is_one(deploy):
    deploy.endpoint("whole")
    answer = deploy.runtime.invoke_endpoint_with_response_stream(
        EndpointName="whole", Body="[1, 2]", ContentType="application/json"
    )
    assert [payload(event) for event in answer["Body"]] == [b"[2.0, 4.0]"]


def test_a_missing_endpoint_is_named(deploy):
    with pytest.raises(ClientError, match="Endpoint nowhere of account 000000000000 not found"):
        deploy.runtime.invoke_endpoint_with_response_stream(EndpointName="nowhere", Body=b"")
