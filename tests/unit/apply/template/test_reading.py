"""Files of templates: what scalars mean, short tags, and what is no template."""

import json
import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sagehen.apply.template.reading import (
    MAX_TEMPLATE_BYTES,
    read_template_file,
    read_text,
)
from sagehen.base.errors import Invalid


def refusal(text):
    with pytest.raises(Invalid) as caught:
        read_text(text, "t.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2010-09-09", "2010-09-09"),
        ("012345678901", "012345678901"),
        ("12:30", "12:30"),
        ("yes", "yes"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        ("12", 12),
        ("-3", -3),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("True", True),
        ("~", None),
        ("", None),
        ("[]", []),
        ("{}", {}),
        ('"12"', "12"),
        ("!!str 12", "12"),
        ("!!int '12'", 12),
        ("!Ref x", {"Ref": "x"}),
        ("!Sub '${x}'", {"Fn::Sub": "${x}"}),
        ("!GetAtt a.b.c", {"Fn::GetAtt": "a.b.c"}),
        ("!Join [',', [!Ref x, y]]", {"Fn::Join": [",", [{"Ref": "x"}, "y"]]}),
        ("!Condition c", {"Condition": "c"}),
        ("!Sub [a, {b: !Ref x}]", {"Fn::Sub": ["a", {"b": {"Ref": "x"}}]}),
    ],
)
def test_what_is_written_and_what_it_means(written, meant):
    found = read_text(f"a: {written}", "t.yaml")["a"]
    assert found == meant
    assert type(found) is type(meant) or isinstance(found, float)


def test_a_number_with_a_point_is_a_text_as_it_was_written():
    for text in ("a: 1.10", '{"a": 1.10}'):
        found = read_text(text, "t")["a"]
        assert (found, found.text) == (1.1, "1.10")


def test_keys_are_texts_whatever_they_look_like():
    assert read_text("2019: 1\ntrue: 2\n<<: 3", "t") == {"2019": 1, "true": 2, "<<": 3}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &x 1\nb: *x", "line 2, column 4: aliases are not supported"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: the key a is defined twice"),
        ("a: {b: 1, b: 2}", "the key b is defined twice"),
        ("a:\n  b: !Foo 1", "line 2, column 6: !Foo is no tag"),
        ("a: !!python/object/apply:os.system [x]", "is no tag"),
        ("a: !!binary aGk=", "is no tag"),
        ("a: !!timestamp 2020-01-01", "is no tag"),
        ("a: !!int x", "x is not a number"),
        ("a: !!bool x", "neither true nor false"),
        ("a: 1e999", "1e999 is not a number"),
        ("a: " + "9" * 5000, "is not a number"),
        ("a: [1", "line 1, column 6"),
        ("? [a]\n: b", "a key must be a text"),
        ("a: \x01", "special characters are not allowed"),
        ("a: 1\n---\nb: 2", "expected a single document"),
        ("- 1", "not a mapping of sections"),
        ("", "not a mapping of sections"),
        ("a: " + "[" * 101 + "]" * 101, "over 100 levels"),
        ("a: " + "[" * 50_000, "over 100 levels"),
        ('{"a": ' + "[" * 200_000, "over 100 levels"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": 1e999}', "1e999 is not a number"),
        ('{"a": 1, "a": 2}', "the key a is defined twice"),
        ('{"a": 1,\n "b" 2}', "line 2, column 6: Expecting ':'"),
    ],
)
def test_what_is_no_template(text, why):
    said = refusal(text)
    assert said.startswith("Template format error: ")
    assert why in said


def test_billion_laughs_are_not_laughed():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert "aliases are not supported" in refusal("\n".join(lines))


def test_a_file_has_a_bound(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_text("a: " + "x" * 10 * 2**20)
    began = time.thread_time()
    with pytest.raises(Invalid, match=f"over {MAX_TEMPLATE_BYTES} bytes"):
        read_template_file(path)
    assert time.thread_time() - began < 1


def test_files_that_cannot_be_read(tmp_path):
    for content in (None, b"a: \xff\xfe"):
        path = tmp_path / "t.yaml"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(Invalid, match=r"cannot be read|not in UTF-8"):
            read_template_file(path)
    (tmp_path / "bom.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_template_file(tmp_path / "bom.json") == {"a": 1}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=150, derandomize=True, database=None, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=6), PLAIN, min_size=1, max_size=3))
def test_both_languages_say_the_same(found):
    assert read_text(json.dumps(found), "t") == found
    block = yaml.safe_dump(found, default_style='"', allow_unicode=True)
    if not any(mark in block for mark in ("!!", "? ")):
        assert read_text("# a comment\n" + block, "t") == found
