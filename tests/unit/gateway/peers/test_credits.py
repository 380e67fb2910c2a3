"""Which gateway of a cluster gets a free slot."""

from itertools import cycle

import pytest

from sagehen.frame.routes import RoutingStrategy
from sagehen.gateway.peers.credits import (
    FAN_OUT,
    FRESH_SECONDS,
    EarlyGrants,
    NodeCredits,
    Reservations,
    choose_node,
    choose_nodes_to_reserve,
)

RANDOM = RoutingStrategy.RANDOM
LEAST = RoutingStrategy.LEAST_OUTSTANDING_REQUESTS


def numbers(*values: float):
    return cycle(values).__next__


def test_a_node_of_which_nothing_is_known_may_be_free():
    node = NodeCredits(instances=2, slots=2)
    assert node.believed_free(now=0) == 2
    node.send()
    node.send()
    assert node.believed_free(now=0) == 0
    node.end()
    assert node.believed_free(now=0) == 1


def test_a_node_that_reported_no_free_slot_is_tried_again_a_little_later():
    node = NodeCredits(instances=2, slots=2)
    node.report(0, now=10.0)
    assert node.believed_free(10.0 + FRESH_SECONDS) == 0
    assert node.believed_free(10.1) == 2


def test_requests_sent_since_a_report_count():
    node = NodeCredits(instances=4, slots=4)
    node.report(1, now=10.0)
    assert node.believed_free(10.0) == 1
    node.send()
    assert node.believed_free(10.0) == 0
    node.report(2, now=10.01)
    assert node.believed_free(10.01) == 2


def test_nothing_is_sent_to_a_node_that_is_away_or_full():
    full, away = NodeCredits(1, 1), NodeCredits(1, 1)
    full.report(0, now=1.0)
    away.is_away = True
    assert choose_node([full, away], RANDOM, numbers(0.5), now=1.0) is None
    assert choose_nodes_to_reserve([full, away], numbers(0.5)) == [full]


def test_each_instance_has_the_same_chance():
    small, large = NodeCredits(1, 1), NodeCredits(3, 3)
    chosen = [choose_node([small, large], RANDOM, numbers(at / 8), 0.0) for at in range(8)]
    assert [chosen.count(small), chosen.count(large)] == [2, 6]


def test_least_outstanding_takes_the_better_of_two():
    busy, idle = NodeCredits(2, 8), NodeCredits(2, 8)
    busy.report(1, now=1.0)
    idle.report(8, now=1.0)
    assert choose_node([busy, idle], LEAST, numbers(0.1, 0.9), 1.0) is idle
    assert choose_node([busy, idle], LEAST, numbers(0.1, 0.1), 1.0) is busy
    assert choose_node([busy, idle], RANDOM, numbers(0.1), 1.0) is busy


def test_slots_are_reserved_at_a_bounded_number_of_different_nodes():
    nodes = [NodeCredits(1, 1) for _ in range(50)]
    chosen = choose_nodes_to_reserve(nodes, numbers(0.0, 0.99, 0.5))
    assert len({id(each) for each in chosen}) == len(chosen) == FAN_OUT
    assert choose_nodes_to_reserve(nodes[:2], numbers(0.5)) == nodes[:2]


def test_a_granted_waiter_releases_its_other_reservations():
    reservations = Reservations()
    reservations.add("a", "node 1", 1)
    reservations.add("a", "node 2", 2)
    assert "a" in reservations
    assert reservations.granted(1) == "a"
    assert reservations.remove("a") == [(2, "node 2")]
    assert len(reservations) == 0
    assert "a" not in reservations
    assert reservations.granted(2) is None, "it came too late"


def test_the_oldest_takes_a_grant_and_leaves_its_reservations():
    reservations = Reservations()
    for number in (1, 2):
        reservations.add("old", f"node {number}", number)
    for number in (3, 4):
        reservations.add("young", f"node {number}", number)
    assert reservations.granted(3) == "young"
    reservations.exchange("young", "old")
    assert reservations.remove("old") == [(4, "node 4")]
    assert reservations.granted(2) == "young"
    assert reservations.remove("young") == [(1, "node 1")]
    assert len(reservations) == 0


def test_reservations_at_a_lost_node_are_forgotten():
    reservations = Reservations()
    lost, other = object(), object()
    reservations.add("a", lost, 1)
    reservations.add("a", other, 2)
    reservations.add("b", other, 3)
    assert reservations.lost(lost) == ["a"]
    assert reservations.granted(1) is None
    assert reservations.remove("a") == [(2, other)]


@pytest.fixture
def early() -> EarlyGrants:
    """A node where a request ends each 10 ms."""
    early = EarlyGrants()
    for at in range(5):
        early.ended(1.0 + at * 0.010, waiting=1)
    return early


def test_nothing_is_granted_early_before_requests_have_ended():
    assert EarlyGrants().allowed(oldest_age=9.0, slots=4) == 0


def test_a_request_that_has_hardly_waited_stays_free_to_go_elsewhere(early):
    assert early.allowed(oldest_age=0.009, slots=4) == 0
    assert early.allowed(oldest_age=0.011, slots=4) == 1


def test_more_is_granted_early_where_grants_take_long(early):
    for _ in range(500):
        early.used(0.025)
    assert early.allowed(oldest_age=1.0, slots=100) in (5, 6)
    assert early.allowed(oldest_age=1.0, slots=4) == 2, "half of the slots"


def test_pauses_without_waiting_requests_do_not_count():
    early = EarlyGrants()
    early.ended(1.0, waiting=1)
    early.ended(1.010, waiting=0)
    early.ended(60.0, waiting=1)
    early.ended(60.010, waiting=1)
    assert early.allowed(oldest_age=0.011, slots=2) == 1


def test_behind_a_single_slot_a_request_must_have_waited_longer(early):
    assert early.allowed(oldest_age=0.039, slots=1) == 0
    assert early.allowed(oldest_age=0.041, slots=1) == 1
