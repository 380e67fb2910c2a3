"""XML from strangers is read without doing what it says."""

import pytest

from sagehen.services.s3.http.xml import child_text, parse, text
from sagehen.wire.errors import AwsError

BOMB = b"""<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;&x;&x;&x;&x;&x;&x;">]>
<Delete><Object><Key>&y;</Key></Object></Delete>"""
FILE = b"""<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><Delete>&x;</Delete>"""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<Delete>",
        b"<Other/>",
        b"no xml",
        b"\xff\xfe<",
        BOMB,
        FILE,
        BOMB.decode().encode("utf-16"),
    ],
)
def test_what_is_no_such_document_is_refused(data: bytes) -> None:
    with pytest.raises(AwsError) as caught:
        parse(data, "Delete")
    assert caught.value.code == "MalformedXML"


@pytest.mark.parametrize("value", ["a&b<c>\"d'", "line\nfeed\ttab\rreturn", "東京"])
def test_text_comes_back(value: str) -> None:
    found = parse(f'<Delete xmlns="urn:x">{text("Key", value)}</Delete>'.encode(), "Delete")
    assert child_text(found, "Key") == value
    assert child_text(found, "Other") is None
