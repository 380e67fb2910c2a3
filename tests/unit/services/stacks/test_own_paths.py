"""The paths of stacks: written by one at a time, over what was read."""

import json

import pytest

from sagehen.base.errors import Conflict, Invalid, NotFound
from sagehen.frame.own_paths.routes import OwnPathRequest
from sagehen.services.stacks.own_paths import _StackPaths
from support.clock import HandClock

NOW = 1_800_000_000.0


class House:
    def __init__(self, database):
        self.clock = HandClock(NOW)
        self.paths = _StackPaths(database, self.clock)

    def ask(self, method, name="", query=(), body=b""):
        asked = OwnPathRequest(method, {"name": name} if name else {}, dict(query), body)
        act = {
            "LIST": self.paths.list_all,
            "GET": self.paths.read,
            "PUT": self.paths.put,
            "DELETE": self.paths.delete,
        }[method]
        return act(asked)

    def put(self, version, name="s", holder="h", **more):
        body = {"version": version, "holder": holder, "who": f"{holder}@host", "content": {}}
        return self.ask("PUT", name, body=json.dumps(body | more).encode())

    def delete(self, version, name="s", holder="h"):
        return self.ask("DELETE", name, {"version": str(version), "holder": holder})


@pytest.fixture
def house(any_database):
    return House(any_database)


def test_a_stack_is_written_over_what_was_read(house):
    first = house.put(0, content={"resources": []})
    assert (first.version, first.created_at, first.claim) == (1, NOW, None)
    house.clock.seconds += 5
    second = house.put(1, content={"resources": ["m"]})
    assert second == house.ask("GET", "s")
    assert (second.version, second.created_at, second.modified_at) == (2, NOW, NOW + 5)
    assert second.content == {"resources": ["m"]}


def test_a_claim_ends_although_the_clock_was_set_back(house):
    house.put(0, holder="a", claim_seconds=60)
    house.clock.seconds -= 30
    with pytest.raises(Conflict, match="works on the stack"):
        house.put(1, holder="b")
    house.clock.seconds -= 5 * 3600
    assert house.put(1, holder="b").version == 2


@pytest.mark.parametrize("version", [0, 2, 7])
def test_what_somebody_else_has_written_is_not_written_over(house, version):
    house.put(0, content={"kept": True})
    with pytest.raises(Conflict, match=f"at version 1 and not at {version}"):
        house.put(version)
    assert house.ask("GET", "s").content == {"kept": True}


def test_nothing_is_written_over_where_there_was_nothing(house):
    with pytest.raises(Conflict, match="at version 0 and not at 3"):
        house.put(3)
    with pytest.raises(NotFound):
        house.ask("GET", "s")


def test_a_claim_keeps_others_out_until_it_runs_out(house):
    house.put(0, holder="a", claim_seconds=60)
    house.clock.seconds += 30
    with pytest.raises(Conflict, match=r"a@host works on the stack s.*since 2027-01-15 08:00:00"):
        house.put(1, holder="b")
    renewed = house.put(1, holder="a", claim_seconds=60)
    assert (renewed.claim.since, renewed.claim.expires_at) == (NOW, NOW + 90)
    with pytest.raises(Conflict):
        house.delete(2, holder="b")
    house.clock.seconds += 60
    taken = house.put(2, holder="b", claim_seconds=60)
    assert (taken.claim.holder, taken.claim.since) == ("b", NOW + 90)


def test_a_claim_is_given_back(house):
    house.put(0, holder="a", claim_seconds=60)
    house.put(1, holder="a")
    assert house.put(2, holder="b").version == 3


def test_a_claim_of_who_is_known_to_be_dead_is_taken_over(house):
    house.put(0, holder="a", claim_seconds=60)
    with pytest.raises(Conflict):
        house.put(1, holder="b", over="c")
    assert house.put(1, holder="b", over="a", claim_seconds=1).claim.holder == "b"


def test_a_stack_is_forgotten(house):
    house.put(0)
    with pytest.raises(Conflict):
        house.delete(7)
    assert house.delete(1) == {}
    with pytest.raises(NotFound, match="no stack s"):
        house.delete(1)
    assert house.put(0).version == 1


def test_stacks_are_listed_in_pages(house):
    for name in ("b", "c", "a"):
        house.put(0, name, content={"much": "more"})
    page = house.ask("LIST", query={"limit": "2"})
    assert [one["name"] for one in page["stacks"]] == ["a", "b"]
    assert "content" not in page["stacks"][0]
    rest = house.ask("LIST", query={"after": page["next"]})
    assert ([one["name"] for one in rest["stacks"]], rest["next"]) == (["c"], None)


@pytest.mark.parametrize("name", ["1st", "a_b", "a b", "a/../b", "a" * 129])
def test_a_name_that_is_none(house, name):
    with pytest.raises(Invalid, match="name of a stack"):
        house.put(0, name)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version": -1}',
        b'{"version": 0, "holder": "", "who": "w", "content": {}}',
        b'{"version": 0, "holder": "\xff", "who": "w", "content": {}}',
        b'{"version": 0, "holder": "h", "who": "w", "content": []}',
        b'{"version": 0, "holder": "h", "who": "w", "content": {}, "claim_seconds": 1e9}',
        b'{"version": 0, "holder": "h", "who": "w", "content": {}, "more": 1}',
        b'{"version": 0, "holder": "h", "who": "w", "content": {"a": ' + b"[" * 100_000,
    ],
)
def test_a_body_that_is_none(house, body):
    with pytest.raises(Invalid, match="not a valid stack"):
        house.ask("PUT", "s", body=body)


@pytest.mark.parametrize("query", [{}, {"version": "x"}, {"version": "0"}, {"version": "9" * 20}])
def test_what_is_forgotten_has_a_version(house, query):
    with pytest.raises(Invalid, match="version must be a number"):
        house.ask("DELETE", "s", query)
