import json

import numpy
import pytest

from sagehen.containers.modelserver.adapters.shared import codecs
from sagehen.containers.modelserver.adapters.shared import codecs as json_text
from sagehen.containers.modelserver.adapters.shared.codecs import PIECE_VALUES


def plain(value):
    return value.tolist()


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        1.5,
        [[]] * (2 * PIECE_VALUES),
        list(range(3 * PIECE_VALUES + 1)),
        tuple(range(PIECE_VALUES + 1)),
        [{"score": each} for each in range(2 * PIECE_VALUES)],
        {"predictions": [[1.0, float("nan")]] * PIECE_VALUES, 'a "b"': "x", 3: None},
        [list(range(2 * PIECE_VALUES)), ["a"], "b"],
        {"deep": {"er": [{"row": list(range(PIECE_VALUES + 1))}] * 2}},
    ],
    ids=lambda value: str(value)[:30],
)
def test_writes_what_json_writes(value):
    assert json_text.json_text(value) == json.dumps(value)


@pytest.mark.parametrize(
    "shape", [(), (3,), (0, 4), (PIECE_VALUES + 1,), (7000, 3), (2, 3 * PIECE_VALUES)]
)
def test_writes_arrays_as_their_lists(shape):
    value = {"labels": ["a"], "probabilities": numpy.ones(shape) / 3}
    assert json_text.json_text(value, plain) == json.dumps(value, default=plain)


@pytest.mark.parametrize(
    "value",
    [
        numpy.ones((5 * PIECE_VALUES, 3)) / 3,
        numpy.ones((3, 5 * PIECE_VALUES)) / 3,
        {"predictions": [[0.1] * 3] * 5 * PIECE_VALUES},
        [{"score": 0.1}] * 5 * PIECE_VALUES,
    ],
    ids=["rows", "columns", "lists", "objects"],
)
def test_no_part_of_a_large_answer_holds_up_the_other_threads(value):
    """A caller's 25 MB of rows once had the interpreter for ten seconds, and the server, which
    could not answer its pings, was started again with everybody's requests."""
    parts = list(json_text._pieces(value, plain))
    assert max(map(len, parts)) < 30 * PIECE_VALUES
    assert "".join(parts) == json.dumps(value, default=plain)


def test_what_cannot_be_written_is_said_as_json_says_it():
    with pytest.raises(TypeError, match="not JSON serializable"):
        codecs.encode([*range(2 * PIECE_VALUES), object()], codecs.JSON)
    with pytest.raises(TypeError, match="keys must be str"):
        json_text.json_text({(1, 2): [0] * 2 * PIECE_VALUES})
