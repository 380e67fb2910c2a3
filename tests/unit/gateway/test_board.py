"""The board: what several gateways, any of which may be killed at any time, count together."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.domain.routes import BOARD_COLUMNS
from sagehen.gateway.board import clear_row, make_board, open_board

ROWS, COLUMNS = 3, (0, 7, BOARD_COLUMNS - 1)
row = st.integers(0, ROWS - 1)
column = st.sampled_from(COLUMNS)
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("take"), row, column),
        st.tuples(st.just("give"), row, column),
        st.tuples(st.just("kill"), row, st.none()),
        st.tuples(st.just("restart"), row, st.none()),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(happenings)
def test_all_see_the_sum_and_never_less_than_nothing(happened):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "board"
        make_board(path, ROWS)
        boards = [open_board(path, number) for number in range(ROWS)]
        working: list[Counter[int]] = [Counter() for _ in range(ROWS)]
        for what, at, where in happened:
            if what == "take":
                boards[at].take(where)
                working[at][where] += 1
            elif what == "give" and working[at][where]:
                boards[at].give(where)
                working[at][where] -= 1
            elif what == "kill":
                working[at].clear()
                clear_row(path, at)
            elif what == "restart":
                working[at].clear()
                boards[at] = open_board(path, at)
            for each in COLUMNS:
                expected = sum(counts[each] for counts in working)
                assert {board.outstanding(each) for board in boards} == {expected}


def test_a_new_server_begins_with_an_empty_board(tmp_path):
    make_board(tmp_path / "board", 2)
    old = open_board(tmp_path / "board", 1)
    old.take(5)
    make_board(tmp_path / "board", 4)
    old.take(5)
    assert open_board(tmp_path / "board", 3).outstanding(5) == 0
