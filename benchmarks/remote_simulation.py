"""A cluster in simulated time: gateways and nodes that decide by the gateway's own code
(sagehen.gateway.peers.credits), next to one ideal queue for all instances.

Requests come at random times (Poisson) to gateways at random; how long each takes is drawn from a
log-normal. Every message between two nodes takes `delay_seconds`, within a node none. The ideal
queue knows everything at once, and its messages take no time.
"""

import math
import random
from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any

from sagehen.frame.routes import RoutingStrategy
from sagehen.gateway.peers.credits import (
    EarlyGrants,
    NodeCredits,
    Reservations,
    choose_node,
    choose_nodes_to_reserve,
)


@dataclass(frozen=True)
class Case:
    """One simulated cluster and its load."""

    instances: int
    nodes: int
    gateways: int
    load: float
    """of all instances, 0 to 1"""
    delay_seconds: float = 0.0003
    """of one message between two nodes"""
    median_seconds: float = 0.020
    sigma: float = 1.0
    requests: int = 50_000
    seed: int = 2026
    strategy: RoutingStrategy = RoutingStrategy.LEAST_OUTSTANDING_REQUESTS

    @property
    def mean_seconds(self) -> float:
        return self.median_seconds * math.exp(self.sigma**2 / 2)


@dataclass
class Outcome:
    seconds: list[float] = field(default_factory=list)
    """of each request, from its arrival at a gateway to its answer there"""
    messages: int = 0
    """between nodes, and between a gateway and its own node, as if that were another"""
    refused: int = 0
    queued: int = 0

    def quantile(self, part: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


class Request:
    __slots__ = ("arrived", "gateway", "service")

    def __init__(self, arrived: float, service: float, gateway: "Gateway") -> None:
        self.arrived = arrived
        self.service = service
        self.gateway = gateway


class Simulation:
    """Events in order of time."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.now = 0.0
        self.random = random.Random(case.seed + 1)
        self.outcome = Outcome()
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self.nodes = [Node(self, number) for number in range(case.nodes)]
        self.gateways = [Gateway(self, number) for number in range(case.gateways)]

    def at(self, seconds: float, call: Callable[..., None], *values: Any) -> None:
        self._count += 1
        heappush(self._events, (seconds, self._count, call, values))

    def message(self, gateway: int, node: int, call: Callable[..., None], *values: Any) -> None:
        self.outcome.messages += 1
        is_local = gateway % self.case.nodes == node
        self.at(self.now + (0.0 if is_local else self.case.delay_seconds), call, *values)

    def run(self) -> Outcome:
        for arrived, service, gateway in draw(self.case):
            request = Request(arrived, service, self.gateways[gateway])
            self.at(arrived, request.gateway.arrives, request)
        while self._events:
            self.now, _, call, values = heappop(self._events)
            call(*values)
        return self.outcome


class Gateway:
    def __init__(self, simulation: Simulation, number: int) -> None:
        self.simulation = simulation
        self.number = number
        self.credits = [NodeCredits(node.slots, node.slots) for node in simulation.nodes]
        self.number_of = {id(each): at for at, each in enumerate(self.credits)}
        self.waiting: deque[Request] = deque()
        self.numbers = count(1)
        self.reservations: Reservations[Request, NodeCredits] = Reservations()

    def arrives(self, request: Request) -> None:
        simulation = self.simulation
        if not self.waiting:
            chosen = choose_node(
                self.credits, simulation.case.strategy, simulation.random.random, simulation.now
            )
            if chosen is not None:
                self._send(request, chosen, None)
                return
        self.waiting.append(request)
        self._reserve(request)

    def _reserve(self, request: Request) -> None:
        simulation = self.simulation
        simulation.outcome.queued += 1
        chosen = choose_nodes_to_reserve(self.credits, simulation.random.random)
        for credits in chosen:
            number = next(self.numbers)
            self.reservations.add(request, credits, number)
            node = self.number_of[id(credits)]
            simulation.message(
                self.number, node, simulation.nodes[node].reserve, self, number, request.arrived
            )

    def _send(self, request: Request, credits: NodeCredits, number: int | None) -> None:
        credits.send()
        node = self.number_of[id(credits)]
        target = self.simulation.nodes[node]
        self.simulation.message(self.number, node, target.receive, self, request, number)

    def granted(self, node: int, number: int) -> None:
        waiter = self.reservations.granted(number)
        if waiter is None:
            return  # released meanwhile: the node knows by now
        oldest = self.waiting[0]
        if oldest is not waiter:
            self.reservations.exchange(waiter, oldest)
        self.waiting.popleft()
        self._release(oldest)
        self._send(oldest, self.credits[node], number)

    def _release(self, request: Request) -> None:
        simulation = self.simulation
        for number, credits in self.reservations.remove(request):
            node = self.number_of[id(credits)]
            simulation.message(self.number, node, simulation.nodes[node].release, self, number)

    def refused(self, node: int, request: Request, free: int) -> None:
        self.simulation.outcome.refused += 1
        self.credits[node].end()
        self.credits[node].report(free, self.simulation.now)
        self.waiting.appendleft(request)
        self._reserve(request)

    def answered(self, node: int, request: Request, free: int) -> None:
        self.credits[node].end()
        self.credits[node].report(free, self.simulation.now)
        self.simulation.outcome.seconds.append(self.simulation.now - request.arrived)


class Place:
    """A reservation in a node's queue; its request waits there too if it was granted early."""

    __slots__ = ("gateway", "granted_at", "has_slot", "is_gone", "number", "request", "since")

    def __init__(self, gateway: Gateway, number: int, since: float) -> None:
        self.gateway = gateway
        self.number = number
        self.since = since
        self.request: Request | None = None
        self.granted_at: float | None = None
        self.has_slot = False
        self.is_gone = False

    def __lt__(self, other: "Place") -> bool:
        return self.since < other.since


class Node:
    def __init__(self, simulation: Simulation, number: int) -> None:
        self.simulation = simulation
        self.number = number
        case = simulation.case
        share, more = divmod(case.instances, case.nodes)
        self.slots = share + (number < more)
        self.free = self.slots
        self.queue: list[Place] = []
        self.places: dict[tuple[int, int], Place] = {}
        self.early = EarlyGrants()

    @property
    def spare(self) -> int:
        return 0 if self.queue else self.free

    def receive(self, gateway: Gateway, request: Request, number: int | None) -> None:
        if number is not None:
            place = self.places.pop((gateway.number, number))
            assert place.granted_at is not None
            self.early.used(self.simulation.now - place.granted_at)
            place.request = request
            if place.has_slot:
                self._begin(gateway, request)
        elif self.spare:
            self.free -= 1
            self._begin(gateway, request)
        else:
            self.simulation.message(
                gateway.number, self.number, gateway.refused, self.number, request, self.spare
            )

    def reserve(self, gateway: Gateway, number: int, since: float) -> None:
        place = Place(gateway, number, since)
        self.places[gateway.number, number] = place
        insort(self.queue, place)
        self._serve()

    def release(self, gateway: Gateway, number: int) -> None:
        place = self.places.pop((gateway.number, number))
        place.is_gone = True
        if place.has_slot:
            self.free += 1
        else:
            self.queue.remove(place)
        self._serve()

    def _serve(self) -> None:
        while self.free and self.queue:
            place = self.queue.pop(0)
            place.has_slot = True
            self.free -= 1
            if place.request is not None:
                self._begin(place.gateway, place.request)
            elif place.granted_at is None:
                self._grant(place)
        self._grant_early()

    def _grant_early(self) -> None:
        pending = [place for place in self.queue if place.granted_at is None]
        early = len(self.queue) - len(pending)
        for place in pending:
            age = self.simulation.now - place.since
            if early >= self.early.allowed(age, self.slots):
                return
            early += 1
            self._grant(place)

    def _grant(self, place: Place) -> None:
        simulation, gateway = self.simulation, place.gateway
        place.granted_at = simulation.now
        simulation.message(gateway.number, self.number, gateway.granted, self.number, place.number)

    def _begin(self, gateway: Gateway, request: Request) -> None:
        simulation = self.simulation
        simulation.at(simulation.now + request.service, self._ended, gateway, request)

    def _ended(self, gateway: Gateway, request: Request) -> None:
        simulation = self.simulation
        self.free += 1
        self.early.ended(simulation.now, len(self.queue))
        self._serve()
        simulation.message(
            gateway.number, self.number, gateway.answered, self.number, request, self.spare
        )


def draw(case: Case) -> list[tuple[float, float, int]]:
    """Returns arrival, service time and gateway of each request, the same for all strategies."""
    generator = random.Random(case.seed)
    rate = case.load * case.instances / case.mean_seconds
    mu = math.log(case.median_seconds)
    now, drawn = 0.0, []
    for _ in range(case.requests):
        now += generator.expovariate(rate)
        service = generator.lognormvariate(mu, case.sigma)
        drawn.append((now, service, int(generator.random() * case.gateways)))
    return drawn


def ideal(case: Case) -> Outcome:
    """One queue for all instances: first come, first served, without any delay."""
    free = [0.0] * case.instances
    outcome = Outcome()
    for arrived, service, _ in draw(case):
        ended = max(arrived, heappop(free)) + service
        heappush(free, ended)
        outcome.seconds.append(ended - arrived)
    return outcome
