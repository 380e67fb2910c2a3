"""The hits of an ideal cache."""

from collections.abc import Sequence


def least_recent_hits(draws: Sequence[int], sizes: Sequence[int], capacity: int) -> float:
    """The share of hits that a cache has which forgets the least recently used.

    Args:
        sizes: of the models, by number.
        room: for models of so much together.
    """
    cached: dict[int, None] = {}
    hits = taken = 0
    for number in draws:
        if number in cached:
            hits += 1
            del cached[number]
        else:
            taken += sizes[number]
            while taken > capacity:
                oldest = next(iter(cached))
                del cached[oldest]
                taken -= sizes[oldest]
        cached[number] = None
    return hits / len(draws)
