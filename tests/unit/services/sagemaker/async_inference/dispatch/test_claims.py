"""How room is shared between endpoints."""

from hypothesis import given
from hypothesis import strategies as st

from sagehen.services.sagemaker.async_inference.dispatch.claims import share

wants = st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.integers(0, 50), max_size=8)


@given(wants, st.integers(0, 200), st.integers(0, 20))
def test_room_is_used_and_shared_evenly(wanted: dict[str, int], room: int, first: int) -> None:
    got = share(wanted, room, first)
    assert sum(got.values()) == min(room, sum(wanted.values()))
    assert all(0 < count <= wanted[name] for name, count in got.items())
    # Who got less than it wanted is at most one behind the one that got most.
    short = [got.get(name, 0) for name, most in wanted.items() if got.get(name, 0) < most]
    assert all(max(got.values(), default=0) - count <= 1 for count in short)


def test_turns_change_when_there_is_little_room() -> None:
    first = [next(iter(share({"a": 9, "b": 9, "c": 9}, 1, turn))) for turn in range(3)]
    assert sorted(first) == ["a", "b", "c"]
