"""Numbers, switches and the log level in environment variables."""

import logging

import pytest

from sagehen.base.errors import SettingError
from sagehen.containers.variables import non_negative, positive, read_log_level, seconds, switch


def test_the_first_name_that_is_set_counts() -> None:
    environ = {"B": " 2 ", "C": "3", "EMPTY": " "}
    assert positive(environ, "A", "EMPTY", "B", "C") == 2
    assert seconds(environ, "A", "EMPTY", "C", "B") == 3
    assert positive(environ, "A") is seconds(environ, "A") is switch(environ, "A") is None


def test_zero_is_a_number_where_it_may_be() -> None:
    assert non_negative({"A": "0"}, "A") == 0
    with pytest.raises(SettingError, match="A is '0'; it must be a whole number above 0"):
        positive({"A": "0"}, "A")


@pytest.mark.parametrize("text", ["-1", "1.5", "two", "²", "1e3"])
def test_what_is_no_whole_number_is_named(text: str) -> None:
    with pytest.raises(SettingError, match="; it must be a whole number"):
        non_negative({"A": text}, "A")


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "1e9", "soon"])
def test_what_is_no_time_is_named(text: str) -> None:
    assert seconds({"A": "0.5"}, "A") == 0.5
    with pytest.raises(SettingError, match="it must be a number of seconds above 0"):
        seconds({"A": text}, "A")


def test_switches_have_many_words() -> None:
    assert switch({"A": "Yes"}, "A") is True
    assert switch({"A": " off "}, "A") is False
    with pytest.raises(SettingError, match="A is 'maybe'; it must be true or false"):
        switch({"A": "Maybe"}, "A")


@pytest.mark.parametrize(
    ("text", "level"), [("", logging.INFO), ("debug", 10), ("35", 35), (" ERROR ", 40)]
)
def test_a_log_level_is_a_number_or_a_name(text: str, level: int) -> None:
    assert read_log_level({"SAGEMAKER_CONTAINER_LOG_LEVEL": text}) == level


def test_another_log_level_is_named() -> None:
    with pytest.raises(SettingError, match="is 'loud'; it must be a number such as 20, or INFO"):
        read_log_level({"SAGEMAKER_CONTAINER_LOG_LEVEL": "loud"})
