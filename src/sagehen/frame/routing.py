"""Chooses the variant and the instance for a request."""

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
"""returns a number in [0, 1)"""


class Busy(Protocol):
    @property
    def outstanding(self) -> int:
        """Requests in progress, as far as known here."""


class Slotted(Busy, Protocol):
    @property
    def is_free(self) -> bool: ...


B = TypeVar("B", bound=Busy)
S = TypeVar("S", bound=Slotted)


def choose_variant(weights: Sequence[float], random: Random) -> int:
    """Returns an index, with the chance `weight / sum of weights`; if all are 0, with equal
    chances."""
    if len(weights) == 1:
        return 0
    total = sum(weights)
    if total <= 0:
        return int(random() * len(weights))
    remaining = random() * total
    last = 0
    for index, weight in enumerate(weights):
        if weight <= 0:
            continue
        last = index
        if remaining < weight:
            return index
        remaining -= weight
    # Rounding may leave a rest after the last weight.
    return last


def choose_instance(instances: Sequence[B], strategy: RoutingStrategy, random: Random) -> B:
    """Breaks ties at random. `instances` is not empty."""
    if len(instances) == 1:
        return instances[0]
    if strategy is RoutingStrategy.LEAST_OUTSTANDING_REQUESTS:
        counts = [instance.outstanding for instance in instances]
        fewest = min(counts)
        instances = [
            instance for instance, count in zip(instances, counts, strict=True) if count == fewest
        ]
    return instances[int(random() * len(instances))]


def choose_free(instances: Sequence[S], strategy: RoutingStrategy, random: Random) -> S | None:
    chosen = choose_instance(instances, strategy, random)
    if chosen.is_free:
        return chosen
    free = [instance for instance in instances if instance.is_free]
    return choose_instance(free, strategy, random) if free else None


def rank_by_affinity(instance_ids: Sequence[str], model: str) -> list[int]:
    """Returns indexes, the best home of `model` first.

    Rendezvous hashing: all gateways agree, and a new or lost instance moves only its own models.
    """
    name = model.encode()

    def score(index: int) -> bytes:
        return blake2b(instance_ids[index].encode() + b"\0" + name, digest_size=8).digest()

    return sorted(range(len(instance_ids)), key=score, reverse=True)


def choose_by_affinity(
    ranked: Sequence[S], are_holders: Sequence[bool], busy_from: int
) -> S | None:
    """Chooses a free instance for a model, if any.

    Prefers instances with fewer than `busy_from` requests, holders of the model first; so another
    copy is made only when all holders are busy. If all are busy: the least busy, a holder if any.
    """
    free = [
        (candidate, is_holder)
        for candidate, is_holder in zip(ranked, are_holders, strict=True)
        if candidate.is_free
    ]
    holders = [candidate for candidate, is_holder in free if is_holder]
    others = [candidate for candidate, is_holder in free if not is_holder]
    for instance in (*holders, *others):
        if instance.outstanding < busy_from:
            return instance
    return min(holders or others, key=lambda instance: instance.outstanding, default=None)
