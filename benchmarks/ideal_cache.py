"""What a cache could have hit."""

from collections.abc import Sequence


def least_recent_hits(draws: Sequence[int], sizes: Sequence[int], room: int) -> float:
    """The share of hits that a cache has which forgets the least recently used.

    Args:
        sizes: of the models, by number.
        room: for models of so much together.
    """
    held: dict[int, None] = {}
    hits = taken = 0
    for number in draws:
        if number in held:
            hits += 1
            del held[number]
        else:
            taken += sizes[number]
            while taken > room:
                oldest = next(iter(held))
                del held[oldest]
                taken -= sizes[oldest]
        held[number] = None
    return hits / len(draws)
