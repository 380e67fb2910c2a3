from fractions import Fraction

import pytest

from sagehen.frame.gpu_allocation import Demand, allocate, gpus_per_host

QUARTER, HALF, WHOLE = Fraction(1, 4), Fraction(1, 2), Fraction(1)


def free(*shares):
    return {str(index): Fraction(share) for index, share in enumerate(shares)}


@pytest.mark.parametrize(
    ("demand", "total", "exact", "expected"),
    [
        (Demand(gpus=1), 2, False, 1),
        (Demand(gpus=8), 2, False, 2),
        (Demand(gpus=8), 2, True, 8),
        (Demand(gpus=4, hosts=2), 4, False, 2),
        (Demand(gpus=4, hosts=2, fraction=HALF), 4, False, 4),
        (Demand(gpus=1, hosts=3), 2, False, 1),
    ],
)
def test_a_small_machine_stands_in_for_a_large_type(demand, total, exact, expected):
    assert gpus_per_host(demand, total, exact=exact) == expected


@pytest.mark.parametrize(
    ("shares", "demand", "per_host", "expected"),
    [
        ((1, 1), Demand(gpus=1), 1, (("0",),)),
        ((HALF, 1), Demand(gpus=1), 1, (("1",),)),
        ((HALF, 1), Demand(gpus=2), 2, None),
        ((1, 1, 1), Demand(gpus=2), 2, (("0", "1"),)),
        ((1, 1), Demand(gpus=1, hosts=2), 1, (("0",), ("1",))),
        ((1, 1), Demand(gpus=1, hosts=3), 1, None),
        # the fullest with room
        ((1, HALF, QUARTER), Demand(gpus=1, fraction=HALF), 1, (("1",),)),
        ((1, HALF), Demand(gpus=2, fraction=HALF), 2, (("0", "1"),)),
        ((1,), Demand(gpus=1, hosts=2, fraction=HALF), 1, (("0",), ("0",))),
        ((1,), Demand(gpus=1, hosts=5, fraction=QUARTER), 1, None),
    ],
)
def test_chooses_gpus(shares, demand, per_host, expected):
    assert allocate(free(*shares), demand, per_host) == expected


def test_ten_tenths_fill_a_gpu_exactly():
    tenth = Demand(gpus=1, hosts=10, fraction=Fraction("0.1"))
    assert allocate(free(1), tenth, 1) == (("0",),) * 10
