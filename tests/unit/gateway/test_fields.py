from sagehen.gateway.fields import joined_fields


def test_names_are_in_lower_case_and_values_kept():
    assert joined_fields([(b"Content-Type", b"Text/CSV"), (b"X", b"\xe9")]) == {
        "content-type": "Text/CSV",
        "x": "\xe9",
    }


def test_repeated_fields_are_joined_in_their_order():
    fields = [(b"X-A", b"1"), (b"Y", b"2"), (b"x-a", b"3")]
    assert joined_fields(fields) == {"x-a": "1,3", "y": "2"}
