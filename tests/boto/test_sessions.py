"""Sticky sessions with the real client: three instances, each with what it remembers itself."""

import json

import pytest
from botocore.exceptions import ClientError

from support.server import eventually

SCRIPT = """
import json, uuid
from datetime import UTC, datetime, timedelta

SESSION = "X-Amzn-SageMaker-Session-Id"
memory = {}

def model_fn(model_dir): return None
def input_fn(body, content_type): return json.loads(body)

def predict_fn(asked, model): return asked

def output_fn(asked, accept, context):
    session_id = context.get_request_header(0, SESSION)
    if asked["requestType"] == "NEW_SESSION":
        session_id = str(uuid.uuid4())
        memory[session_id] = []
        ends = datetime.now(UTC) + timedelta(seconds=asked.get("seconds", 600))
        ends = ends.strftime("%Y-%m-%dT%H:%M:%SZ")
        context.set_response_header(0, SESSION, f"{session_id}; Expires={ends}")
    elif asked["requestType"] == "CLOSE":
        del memory[session_id]
        context.set_response_header(0, "X-Amzn-SageMaker-Closed-Session-Id", session_id)
    else:
        memory[session_id].append(asked["say"])
        return json.dumps(memory[session_id])
    return "{}"
"""


@pytest.fixture(scope="module")
def talks(deploy):
    """An endpoint with three instances."""
    described = deploy.endpoint("talks", SCRIPT, InitialInstanceCount=3)
    assert described["EndpointStatus"] == "InService"
    return deploy


def ask(talks, session_id, **body):
    return talks.runtime.invoke_endpoint(
        EndpointName="talks",
        Body=json.dumps(body),
        ContentType="application/json",
        SessionId=session_id,
    )


def begin(talks, **body):
    answer = ask(talks, "NEW_SESSION", requestType="NEW_SESSION", **body)
    session_id, _, rest = answer["NewSessionId"].partition(";")
    assert "Expires=" in rest
    return session_id


def say(talks, session_id, word):
    return json.loads(ask(talks, session_id, requestType="SAY", say=word)["Body"].read())


def refusal(talks, session_id):
    with pytest.raises(ClientError) as caught:
        say(talks, session_id, "again")
    assert caught.value.response["Error"]["Code"] == "ValidationError"
    return str(caught.value)


def test_each_session_stays_with_the_instance_that_remembers_it(talks):
    sessions = [begin(talks) for _ in range(9)]
    for word in ("one", "two", "three"):
        said = [say(talks, session_id, word) for session_id in sessions]
    assert said == [["one", "two", "three"]] * 9


def test_a_stream_may_be_within_a_session(talks):
    session_id = begin(talks)
    say(talks, session_id, "one")
    answer = talks.runtime.invoke_endpoint_with_response_stream(
        EndpointName="talks",
        Body=json.dumps({"requestType": "SAY", "say": "two"}),
        ContentType="application/json",
        SessionId=session_id,
    )
    streamed = b"".join(event["PayloadPart"]["Bytes"] for event in answer["Body"])
    assert json.loads(streamed) == ["one", "two"]


def test_a_closed_session_is_known_no_more(talks):
    session_id = begin(talks)
    assert ask(talks, session_id, requestType="CLOSE")["ClosedSessionId"] == session_id
    assert f"Session {session_id} of endpoint talks is not known" in refusal(talks, session_id)


def test_an_expired_session_is_known_no_more(talks):
    session_id = begin(talks, seconds=1)

    def expired():
        try:
            return not say(talks, session_id, "still")
        except ClientError:
            return True

    eventually(expired)
    assert "Begin a new one with the SessionId NEW_SESSION" in refusal(talks, session_id)


def test_a_session_that_was_never_begun_is_refused(talks):
    assert "was never begun" in refusal(talks, "never")
