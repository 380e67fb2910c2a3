"""Claims: whose run is dead, and whose only looks so."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from sagehen.apply import stack as stacks
from sagehen.apply.stack import Journal, Stack, StackContent, StackResource, claimed, load_stack
from sagehen.base.errors import Conflict, Invalid, NotFound
from support.apply_world import World


def holder_of(pid, started=None, machine=None):
    return f"{machine or stacks._machine()}:{pid}:{started or stacks._started(pid)}:x"


def test_a_claim_of_a_process_that_lives_is_respected():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        holder = holder_of(process.pid)
        assert not stacks._is_dead(holder)
        process.kill()
        process.wait()
        assert stacks._is_dead(holder)
        process.stdin.close()


@pytest.mark.parametrize(
    ("holder", "is_dead"),
    [
        (lambda: holder_of(os.getpid()), True),  # An earlier process of our number.
        (lambda: holder_of(1), False),
        (lambda: holder_of(1, started="1.00"), True),
        (lambda: holder_of(1, started="1.00", machine="another"), False),
        (lambda: "anything else", False),
        (lambda: "", False),
    ],
)
def test_what_is_known_of_a_holder(holder, is_dead):
    assert stacks._is_dead(holder()) is is_dead


def kept(name, logical_id="A", **more):
    return StackResource(
        logical_id=logical_id, type="AWS::SNS::Topic", name=name, properties={}, **more
    )


def test_the_record_is_what_the_journal_says():
    world = World()
    with claimed(world, Stack(name="s")) as journal:
        journal.keep(kept("one"))
        journal.set_aside(kept("one"), retained=True)
        journal.keep(kept("two"))
        content = load_stack(world, "s").content
        assert content.resources == {"A": kept("two")}
        assert content.leftovers == (kept("one", deletion_policy="Retain"),)
        journal.keep(kept("one", logical_id="B"))
        assert load_stack(world, "s").content.leftovers == ()
        journal.forget(kept("two"))
        assert world.stacks["s"]["claim"]
    assert list(load_stack(world, "s").content.resources) == ["B"]
    assert world.stacks["s"]["claim"] is None


def test_a_stack_of_nothing_is_none():
    world = World()
    with claimed(world, Stack(name="s")):
        assert "s" in world.stacks
    assert world.stacks == {}
    assert load_stack(world, "s") == Stack(name="s")


def test_a_claim_is_given_back_when_a_run_fails():
    world = World()

    def run():
        with claimed(world, Stack(name="s")) as journal:
            journal.keep(kept("one"))
            raise Invalid("no")

    with pytest.raises(Invalid):
        run()
    assert world.stacks["s"]["claim"] is None


def test_what_another_has_taken_is_left_to_it():
    world = World()
    theirs = {"version": 9, "claim": {"holder": "theirs"}}

    def run():
        with claimed(world, Stack(name="s")) as journal:
            world.stacks["s"] = theirs
            journal.keep(kept("one"))

    with pytest.raises(Conflict):
        run()
    assert world.stacks["s"] == theirs


def test_a_claim_is_renewed_while_something_takes_long(monkeypatch):
    world, now = World(), [0.0]
    monkeypatch.setattr(stacks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    journal = Journal(world, Stack(name="s"))
    journal.write(StackContent())
    for seconds, version in ((5, 1), (10, 1), (16, 2), (20, 2), (32, 3)):
        now[0] = seconds
        journal.beat()
        assert world.stacks["s"]["version"] == version


def test_records_that_are_none():
    world = World()
    world.stacks["s"] = {"version": 1, "claim": None, "content": {"resources": [1]}}
    with pytest.raises(Invalid, match="record of the stack s cannot be read"):
        load_stack(world, "s")

    def gone(*_, **__):
        raise NotFound("Not Found: GET /_sagehen/stacks/s")

    world.own = gone
    with pytest.raises(Invalid, match="keeps no stacks"):
        load_stack(world, "s")
