"""Decides which GPUs an instance or a job's hosts get, as pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from sagehen.frame.gpus import WHOLE

__all__ = ["Allocation", "Demand", "FreeShares", "allocate", "gpus_per_host"]

FreeShares = Mapping[str, Fraction]
"""the free share of each GPU by its id, in nvidia-smi's order"""
Allocation = tuple[tuple[str, ...], ...]
"""the ids of each host's GPUs"""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """GPUs for all hosts of a job, or for an instance, which is one host."""

    gpus: int
    """of the instance type"""
    hosts: int = 1
    fraction: Fraction = WHOLE
    """of each GPU"""


def gpus_per_host(demand: Demand, total: int, *, exact: bool) -> int:
    """Returns how many GPUs each host gets on a machine with `total`.

    A smaller machine stands in for a larger type, as it does for memory, unless `exact`.
    """
    if exact:
        return demand.gpus
    at_once = demand.hosts if demand.fraction == WHOLE else 1
    return max(1, min(demand.gpus, total // at_once))


def allocate(free: FreeShares, demand: Demand, per_host: int) -> Allocation | None:
    """Returns the GPUs of each host; None if too few are free.

    Fractions go to the fullest GPUs that still have room, so that others stay whole.
    """
    left = dict(free)
    hosts: list[tuple[str, ...]] = []
    for _ in range(demand.hosts):
        order = {gpu: number for number, gpu in enumerate(left)}
        fitting = [gpu for gpu, share in left.items() if share >= demand.fraction]
        fitting.sort(key=lambda gpu: (left[gpu], order[gpu]))
        chosen = sorted(fitting[:per_host], key=order.__getitem__)
        if len(chosen) < per_host:
            return None
        for gpu in chosen:
            left[gpu] -= demand.fraction
        hosts.append(tuple(chosen))
    return tuple(hosts)
