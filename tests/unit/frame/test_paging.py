"""Tokens of pages: what this server wrote is read, and nothing else."""

import base64

import pytest

from sagehen.frame.paging import page_of, read_token, write_token
from sagehen.wire.errors import AwsError


def bad_token() -> AwsError:
    return AwsError("InvalidToken", "no")


@pytest.mark.parametrize("name", ["", "a", "arn:aws:sns:r:0:é"])
def test_what_was_written_is_read(name: str) -> None:
    assert read_token(write_token(name), bad_token) == name


@pytest.mark.parametrize(
    "token",
    ["a", "%%%", "é", base64.urlsafe_b64encode(b"\xff").decode(), write_token("a\0b")],
)
def test_a_foreign_token_is_an_error(token: str) -> None:
    with pytest.raises(AwsError, match="no"):
        read_token(token, bad_token)


def test_a_name_of_another_kind_is_an_error() -> None:
    assert read_token("", bad_token, "arn:") == ""
    with pytest.raises(AwsError):
        read_token(write_token("name"), bad_token, "arn:")


def test_only_a_page_with_more_behind_it_has_a_token() -> None:
    assert page_of("Names", ["a", "b"], ["a", "b"], 2) == {"Names": ["a", "b"]}
    page = page_of("Names", ["a", "b", "c"], ["a", "b", "c"], 2)
    assert page["Names"] == ["a", "b"]
    assert read_token(page["NextToken"], bad_token) == "b"
