import uuid

from sagehen.services.sagemaker.async_inference.invocations import ordered_id


def test_it_is_a_uuid_of_version_7_with_its_time():
    made = uuid.UUID(ordered_id(1_700_000_000.123))
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == 1_700_000_000_123


def test_later_ones_sort_after_earlier_ones():
    made = [ordered_id(1_700_000_000 + number / 1000) for number in range(50)]
    assert made == sorted(made)


def test_no_two_of_one_moment_are_alike():
    assert len({ordered_id(5.0) for _ in range(1000)}) == 1000
