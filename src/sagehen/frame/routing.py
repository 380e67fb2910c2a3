"""Which variant and which instance get a request: facts and chance in, a decision out."""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Protocol, TypeVar

from sagehen.frame.routes import RoutingStrategy

__all__ = [
    "Busy",
    "Random",
    "choose_by_affinity",
    "choose_free",
    "choose_instance",
    "choose_variant",
    "rank_by_affinity",
]

Random = Callable[[], float]
"""A number in [0, 1)."""


class Busy(Protocol):
    """Something that works on requests."""

    @property
    def outstanding(self) -> int:
        """How many it works on now, as far as is known here."""


class Slotted(Busy, Protocol):
    """Something that works on so many requests at once and no more."""

    @property
    def is_free(self) -> bool:
        """It may get another request."""


B = TypeVar("B", bound=Busy)
S = TypeVar("S", bound=Slotted)


def choose_variant(weights: Sequence[float], random: Random) -> int:
    """The place of one of `weights`, each with the chance `weight / sum of weights`.

    A weight of 0 is never chosen, unless all are 0: then all have the same chance.
    """
    if len(weights) == 1:
        return 0
    total = sum(weights)
    if total <= 0:
        return int(random() * len(weights))
    left = random() * total
    last = 0
    for place, weight in enumerate(weights):
        if weight <= 0:
            continue
        last = place
        if left < weight:
            return place
        left -= weight
    # Rounding may leave a crumb behind the last weight.
    return last


def choose_instance(instances: Sequence[B], strategy: RoutingStrategy, random: Random) -> B:
    """One of `instances` (at least one) by SageMaker's routing strategy; ties fall at random."""
    if len(instances) == 1:
        return instances[0]
    if strategy is RoutingStrategy.LEAST_OUTSTANDING_REQUESTS:
        counts = [instance.outstanding for instance in instances]
        least = min(counts)
        instances = [one for one, count in zip(instances, counts, strict=True) if count == least]
    return instances[int(random() * len(instances))]


def choose_free(instances: Sequence[S], strategy: RoutingStrategy, random: Random) -> S | None:
    """One of `instances` (at least one) that is free, by the strategy; None where none is."""
    chosen = choose_instance(instances, strategy, random)
    if chosen.is_free:
        return chosen
    free = [instance for instance in instances if instance.is_free]
    return choose_instance(free, strategy, random) if free else None


def rank_by_affinity(instance_ids: Sequence[str], model: str) -> list[int]:
    """The places of `instance_ids`, the one to hold `model` first.

    Rendezvous hashing: every gateway finds the same order without asking anyone, and an instance
    that comes or goes moves only the models that it gets or had.
    """
    name = model.encode()

    def score(place: int) -> bytes:
        return blake2b(instance_ids[place].encode() + b"\0" + name, digest_size=8).digest()

    return sorted(range(len(instance_ids)), key=score, reverse=True)


def choose_by_affinity(ranked: Sequence[S], holds: Sequence[bool], busy_from: int) -> S | None:
    """An instance for a request that names a model; None where none is free.

    The first of those that hold the model, or else of all, that is free and works on fewer than
    `busy_from` requests. So a model stays where it is until all who hold it are busy; then the
    next gets a copy. When all are busy, the least busy of those that are free, a holder if any is.
    """
    free = [(one, held) for one, held in zip(ranked, holds, strict=True) if one.is_free]
    holders = [one for one, held in free if held]
    others = [one for one, held in free if not held]
    for instance in (*holders, *others):
        if instance.outstanding < busy_from:
            return instance
    return min(holders or others, key=lambda instance: instance.outstanding, default=None)
