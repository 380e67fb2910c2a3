import pytest

from sagehen.gateway.admission import params
from sagehen.http1 import fields
from sagehen.http1.fields import joined_fields, joined_raw_fields
from sagehen.wire.values import as_meant


def test_names_are_in_lower_case_and_values_kept():
    assert joined_fields([(b"Content-Type", b"Text/CSV"), (b"X", b"\xe9")]) == {
        "content-type": "Text/CSV",
        "x": "\xe9",
    }


def test_repeated_fields_are_joined_in_their_order():
    fields = [(b"X-A", b"1"), (b"Y", b"2"), (b"x-a", b"3")]
    assert joined_fields(fields) == {"x-a": "1,3", "y": "2"}
    assert joined_raw_fields(fields) == {b"x-a": b"1,3", b"y": b"2"}


@pytest.mark.parametrize(
    "names", [fields._lower_names, params._is_forwarded_by_name], ids=["joined", "forwarded"]
)
def test_long_names_are_not_remembered(names):
    """Anybody may send them: nothing has been signed yet."""
    for number in range(100):
        sent = [(b"x-long-%d-" % number + b"x" * 60_000, b"")]
        joined_fields(sent)
        params.forwarded(sent)
    assert sum(map(len, names)) < 100_000


def test_values_are_read_as_utf_8_where_they_are():
    assert as_meant("plain") == "plain"
    assert as_meant("Zürich/東京".encode().decode("latin-1")) == "Zürich/東京"
    assert as_meant("caf\xe9") == "caf\xe9", "not UTF-8: as it came"
