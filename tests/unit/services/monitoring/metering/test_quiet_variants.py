"""What is measured of variants without requests is the same as of others, and costs less."""

import asyncio
import random
from collections import Counter

import msgspec
import pytest

from sagehen.frame.statistics import Statistics
from sagehen.services.monitoring.metering import sampler as module
from sagehen.services.monitoring.prometheus.gateway_totals import GatewayReport
from support.sampling_world import START, AgentSample

NAMES = ("a", "b", "c")


class Collector:
    """Keeps what a recorder is told, by minute or ten seconds."""

    def __init__(self, clock):
        self.clock = clock
        self.minutes = {}
        self.tens = {}
        self.readings = Counter()

    def put(self, name, dimensions, statistics):
        self.put_into(int(self.clock.now() // 60), name, dimensions, statistics)

    def put_into(self, minute, name, dimensions, statistics):
        key = (minute, name, *dimensions.items())
        self.minutes.setdefault(key, Statistics()).merge(statistics)

    def put_tens(self, name, dimensions, statistics):
        key = (int(self.clock.now() // 10), name, *dimensions.items())
        self.tens.setdefault(key, Statistics()).merge(statistics)

    def put_fine(self, *values):
        self.put(*values)
        self.put_tens(*values)

    def record_gauge(self, name, dimensions, value, source="", latest=False):
        self.readings[int(self.clock.now() // 60), dimensions["EndpointName"], source] += 1

    def flush(self):
        pass


def numbers(collected):
    return {
        key: (each.count, each.sum, each.minimum, each.maximum) for key, each in collected.items()
    }


def sample(world, collector, seed, take_over_at=None):
    """Takes turns for some minutes, in which some endpoints have requests now and then."""
    source = random.Random(seed)
    invocations = dict.fromkeys(NAMES, 0)
    world.clock.seconds = START * 60.0
    world.recorder = collector
    sampler = world.another("me")
    names = list(NAMES)
    for turn in range(12 * 6):
        if turn == 30:
            names = names[:2]  # the last one is deleted
        calls = {name: source.choice([0] * 20 + [1, 3]) for name in names}
        for name in names:
            invocations[name] += calls[name]
        counts = [
            {
                "endpoint": name,
                "variant": "v",
                "Invocations": invocations[name],
                "InvocationsPerInstance": invocations[name],
                "ConcurrentRequestsPerModel": {"now": 0, "lowest": 0, "highest": calls[name]},
            }
            for name in names
        ]
        body = msgspec.json.encode({"gateway": "1", "variants": counts})
        world.observations.record(msgspec.json.decode(body, type=GatewayReport))
        world.agent.told = [AgentSample("CPUUtilization", 1.0, endpoint=name) for name in names]
        if turn == take_over_at:
            sampler.change_leader()
            world.observations.record(msgspec.json.decode(body, type=GatewayReport))
        asyncio.run(sampler.turn())
        world.clock.seconds += module.TURN_SECONDS
    return sampler


@pytest.mark.parametrize("take_over_at", [None, 41])
@pytest.mark.parametrize("seed", range(8))
def test_the_samples_of_quiet_variants_are_those_of_others(world, monkeypatch, seed, take_over_at):
    found = Collector(world.clock)
    sample(world, found, seed, take_over_at)
    world.observations.begin()
    expected = Collector(world.clock)
    with monkeypatch.context() as patch:
        # None is quiet.
        patch.setattr(module.Sampler, "_quiet", property(lambda _: set(), lambda *_: None), False)
        sample(world, expected, seed, take_over_at)
    last = START + 5  # is not over
    assert numbers(found.tens) == numbers(expected.tens)
    assert {key: each for key, each in numbers(found.minutes).items() if key[0] != last} == {
        key: each for key, each in numbers(expected.minutes).items() if key[0] != last
    }
    # Gauges rest for the minute of a take-over.
    rests = set() if take_over_at is None else {START + take_over_at // 12}
    read = {key for key in found.readings if key[0] not in rests}
    assert read == {key for key in expected.readings if key[0] not in rests}
    assert found.readings.total() < expected.readings.total()


def test_the_hosts_of_a_quiet_endpoint_are_read_once_a_minute(world):
    found = Collector(world.clock)
    world.recorder = found
    sampler = world.another("me")
    endpoints = [f"e{number}" for number in range(50)]
    counts = [{"endpoint": name, "variant": "v"} for name in endpoints]
    body = msgspec.json.encode({"gateway": "1", "variants": counts})
    world.agent.told = [AgentSample("CPUUtilization", 1.0, endpoint=name) for name in endpoints]
    for _ in range(12 * 3):
        world.observations.record(msgspec.json.decode(body, type=GatewayReport))
        asyncio.run(sampler.turn())
        world.clock.seconds += module.TURN_SECONDS
    readings = {
        name: [found.readings[START + m, name, "i-1"] for m in range(3)] for name in endpoints
    }
    assert set(map(tuple, readings.values())) == {(6, 1, 1)}


def test_what_quiet_variants_had_until_the_end_is_written(world):
    found = Collector(world.clock)
    world.recorder = found
    sampler = world.another("me")
    world.clock.seconds = START * 60.0 + 50
    for _ in range(4):
        world.report()
        asyncio.run(sampler.turn())
        world.clock.seconds += module.TURN_SECONDS
    sampler.change_leader()
    zeros = {
        key[0] - START: each
        for key, each in numbers(found.minutes).items()
        if key[1] == module.CONCURRENCY
    }
    assert {minute: each[0] for minute, each in zeros.items()} == {0: 2, 1: 3}
