"""Sticky sessions: their files, and requests that follow them."""

import shutil
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import msgspec
import pytest

from sagehen.gateway.routing.sessions import (
    DRAFT_SECONDS,
    LONGEST_SECONDS,
    SESSION_SECONDS,
    Sessions,
)

NEW = b"X-Amzn-SageMaker-New-Session-Id"
STREAM = "/endpoints/price/invocations-response-stream"


class Clock:
    def __init__(self):
        self.time = time.time()

    def now(self):
        return self.time


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sessions(tmp_path, clock):
    return Sessions(tmp_path / "sessions", clock)


def at(seconds):
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()


INSTANCE = SimpleNamespace(instance_id="i-1", run_id="run-1")


def begin(sessions, value, instance=INSTANCE, header=NEW):
    return sessions.record_answer("NEW_SESSION", "price", "Main", instance, [(header, value)])


@pytest.mark.parametrize("header", [NEW, b"x-amzn-sagemaker-session-id"])
def test_both_headers_begin_a_session(sessions, clock, header):
    value = b"abc; Expires=" + at(clock.now() + 100)
    assert begin(sessions, value, header=header) == b"%b: %b\r\n" % (NEW, value)
    found = sessions.find("price", "abc")
    assert (found.variant, found.instance_id) == ("Main", "i-1")


def test_sessions_are_the_endpoints_own_and_tell_case_apart(sessions):
    begin(sessions, b"abc")
    assert sessions.find("other", "abc") is None
    assert sessions.find("price", "ABC") is None


def test_every_gateway_knows_them(sessions, tmp_path, clock):
    begin(sessions, b"a" * 256)
    assert Sessions(tmp_path / "sessions", clock).find("price", "a" * 256) is not None


@pytest.mark.parametrize("said", [b"abc", b"abc; Expires=tomorrow"])
def test_without_a_time_it_has_the_containers_default(sessions, clock, said):
    begin(sessions, said)
    clock.time += SESSION_SECONDS - 1
    assert sessions.find("price", "abc")
    clock.time += 1
    assert sessions.find("price", "abc") is None


def test_expired_sessions_are_removed(sessions, clock, tmp_path):
    begin(sessions, b"short; Expires=" + at(clock.now() + 10))
    begin(sessions, b"long; Expires=" + at(clock.now() + 1000))
    begin(sessions, b"past; Expires=" + at(clock.now() - 1000))
    clock.time += 11
    assert sessions.find("price", "short") is None
    clock.time += DRAFT_SECONDS
    sessions.sweep()
    assert len(list((tmp_path / "sessions").iterdir())) == 1
    assert sessions.find("price", "long")


@pytest.mark.parametrize("expires", ["1e300", "-1e300", "1e11"])
def test_session_of_another_node_has_a_possible_expiry(sessions, tmp_path, expires):
    content = f'{{"variant":"Main","instance_id":"i-1","run_id":"run-1","expires":{expires}}}'
    with pytest.raises(OSError, match="a session cannot expire at"):
        sessions.copy("0" * 64, content.encode())
    assert list((tmp_path / "sessions").iterdir()) == []


def test_session_of_another_node_is_text(sessions, tmp_path):
    with pytest.raises(OSError, match="a session cannot be read"):
        sessions.copy("0" * 64, b'{"variant":"\xff"}')
    assert list((tmp_path / "sessions").iterdir()) == []


def test_session_lasts_a_year_at_most(sessions, clock):
    begin(sessions, b"abc; Expires=9999-12-31T23:59:59Z")
    assert sessions.find("price", "abc").expires == clock.now() + LONGEST_SECONDS


def test_a_closed_session_is_over(sessions):
    begin(sessions, b"abc")
    header = b"X-Amzn-SageMaker-Closed-Session-Id"
    lines = sessions.record_answer("abc", "price", "Main", INSTANCE, [(header.lower(), b"abc")])
    assert lines == header + b": abc\r\n"
    assert sessions.find("price", "abc") is None


def test_an_answer_within_a_session_begins_none(sessions):
    begin(sessions, b"abc")
    answer = [(b"X-Amzn-SageMaker-Session-Id", b"other")]
    assert sessions.record_answer("abc", "price", "Main", INSTANCE, answer) == b""
    assert sessions.find("price", "other") is None


def test_a_container_need_not_begin_one(sessions):
    assert sessions.record_answer("NEW_SESSION", "price", "Main", INSTANCE, []) == b""


@pytest.fixture
async def keepers(house, variant):
    """Three containers that begin sessions, and say who they are."""

    def keeper(name):
        def answer(asked):
            session_id = asked.fields.get("x-amzn-sagemaker-session-id")
            headers = {}
            if session_id == "NEW_SESSION":
                headers["X-Amzn-SageMaker-Session-Id"] = f"s-{name}-{len(kept[name].asked)}"
            elif asked.body == b"close":
                headers["X-Amzn-SageMaker-Closed-Session-Id"] = session_id
            return 200, headers, name.encode()

        return answer

    kept = {name: await house.fake(keeper(name)) for name in "abc"}
    house.route(variant(*kept.values()))
    await house.start()
    return kept


def within(session_id):
    return {"X_Amzn_SageMaker_Session_Id": session_id}


async def begun(house):
    got = await house.invoke(**within("NEW_SESSION"))
    return got.headers["x-amzn-sagemaker-new-session-id"], got.body


async def test_requests_go_where_their_session_is(house, keepers):
    sessions = [await begun(house) for _ in range(9)]
    assert len({body for _, body in sessions}) > 1
    for session_id, body in sessions * 2:
        assert (await house.invoke(**within(session_id))).body == body
    session_id, body = sessions[0]
    streamed = await house.invoke(path=STREAM, **within(session_id))
    assert body in streamed.body


async def test_the_container_gets_the_id(house, keepers):
    session_id, body = await begun(house)
    await house.invoke(**within(session_id))
    asked = keepers[body.decode()].asked
    assert [one.fields["x-amzn-sagemaker-session-id"] for one in asked[-2:]] == [
        "NEW_SESSION",
        session_id,
    ]


async def refused(house, session_id, **headers):
    got = await house.invoke(**within(session_id), **headers)
    assert (got.status, got.headers["x-amzn-errortype"]) == (400, "ValidationError")
    return got.json["Message"]


async def test_a_closed_session_is_told_and_known_no_more(house, keepers):
    session_id, _ = await begun(house)
    got = await house.invoke(b"close", **within(session_id))
    assert got.headers["x-amzn-sagemaker-closed-session-id"] == session_id
    assert "NEW_SESSION" in await refused(house, session_id)


async def test_a_session_that_was_never_begun_is_refused(house, keepers):
    assert "Session never of endpoint price is not known" in await refused(house, "never")


@pytest.mark.parametrize("name", ["AllTraffic", "Other"])
async def test_a_session_whose_instance_is_gone_is_refused(house, keepers, variant, name):
    session_id, _ = await begun(house)
    house.route(variant(name=name))
    house.clock.advance(1)  # so that the table is looked at again
    message = await refused(house, session_id)
    assert f"The instance that held session {session_id} of endpoint price is gone" in message


async def test_an_instance_that_was_started_again_holds_no_session_of_before(
    house, keepers, variant
):
    session_id, _ = await begun(house)
    route = variant(*keepers.values())
    again = [msgspec.structs.replace(one, run_id="again") for one in route.instances]
    house.route(msgspec.structs.replace(route, instances=tuple(again)))
    house.clock.advance(1)  # so that the table is looked at again
    assert "is gone, and the session with it" in await refused(house, session_id)


async def test_a_session_belongs_to_its_variant(house, keepers):
    session_id, _ = await begun(house)
    message = await refused(house, session_id, X_Amzn_SageMaker_Target_Variant="Other")
    assert "held by production variant AllTraffic" in message


async def test_a_session_does_not_move_to_another_instance(house, variant, echo):
    def answer(asked):
        return 200, {"X-Amzn-SageMaker-Session-Id": "s1"}, b""

    container = await house.fake(answer)
    house.route(variant(container))
    await house.start()
    session_id, _ = await begun(house)
    other = await house.fake(echo)
    # The same instances by their ids, but nobody listens for the first any more.
    house.route(variant("unix:/nowhere", other))
    house.clock.advance(1)
    got = await house.invoke(**within(session_id))
    assert (got.status, got.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    assert other.asked == []


async def test_a_session_that_cannot_be_kept_may_be_begun_again(house, keepers):
    shutil.rmtree(house.home.sessions)
    got = await house.invoke(**within("NEW_SESSION"))
    assert (got.status, got.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    assert got.headers["retry-after"] == "1"
    assert "cannot be kept" in got.json["Message"]
    house.home.sessions.mkdir()
    assert (await house.invoke(**within("NEW_SESSION"))).status == 200


async def test_a_session_that_cannot_be_read_may_be_there_all_the_same(house, keepers):
    session_id, _ = await begun(house)
    (file,) = house.home.sessions.iterdir()
    file.unlink()
    file.mkdir()
    got = await house.invoke(**within(session_id))
    assert (got.status, got.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    assert "cannot be read" in got.json["Message"]


async def test_a_fault_of_ours_in_an_answer_is_not_only_the_containers(
    house, keepers, monkeypatch, caplog
):
    def fail(*_):
        raise RuntimeError("Broken on purpose.")

    monkeypatch.setattr(house.gateway._context.sessions, "record_answer", fail)
    assert (await house.invoke(**within("NEW_SESSION"))).status == 424
    assert "Broken on purpose." in caplog.text
