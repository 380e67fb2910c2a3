"""Answers are joined byte by byte, or end with one newline each."""

import pytest

from sagehen.services.sagemaker.transform.records.assembly import assemble
from sagehen.services.sagemaker.transform.records.cutting import Batch


@pytest.mark.parametrize(
    ("assemble_with", "answer", "expected"),
    [
        ("None", b"1\n2", b"1\n2"),
        ("None", b"1\n", b"1\n"),
        ("Line", b"1\n2", b"1\n2\n"),
        ("Line", b"1\n2\n", b"1\n2\n"),
        ("Line", b"1\r\n", b"1\r\n"),
        ("Line", b"", b"\n"),
    ],
)
def test_answers_are_assembled(assemble_with, answer, expected):
    assert assemble(Batch(b"a\nb", 2, 0), answer, assemble_with) == expected
