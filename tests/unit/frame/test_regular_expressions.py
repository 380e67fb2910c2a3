"""Which regular expressions of others may be used."""

import pytest

from sagehen.base.errors import Invalid
from sagehen.frame.regular_expressions import compile_expression


@pytest.mark.parametrize(
    "text",
    [
        r"loss: ([0-9\.]+)",
        r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2},\d{3} \d{4}-\d{2}-\d{2} loss=([0-9.]{1,20})",
        "(a{0,999999})",
        "(?P<x>a{3})(?(x)b{5}|c{6})(?=d{7})(?i:f{9})",
    ],
)
def test_what_people_write_passes(text):
    assert compile_expression(text).pattern == text


@pytest.mark.parametrize(
    "text",
    [
        "(a{1000000})",
        "(?:(?:a{60000}){60000}){60000}()",
        "(?:(?:a{100,}?){100}){100}()",
        "(?x) (?: a {90} ) (?#so) {90} ()",
    ],
)
def test_what_would_take_all_memory_to_compile_does_not(text):
    with pytest.raises(Invalid, match="repeats too much"):
        compile_expression(text)


@pytest.mark.parametrize("text", ["[", "(a", "(" * 400, "[[:nothing:]](a)"])
@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
def test_what_is_none_does_not(text):
    with pytest.raises(Invalid, match="no regular expression"):
        compile_expression(text)


def test_what_has_no_group_does_not():
    with pytest.raises(Invalid, match="no group"):
        compile_expression("a+")
