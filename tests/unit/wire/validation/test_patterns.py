"""Java's regular expressions in Python."""

import pytest

from sagehen.wire.services import SERVED, service
from sagehen.wire.validation.patterns import Untranslatable, compile_pattern


def fits(pattern: str, text: str) -> bool:
    return compile_pattern(pattern).fullmatch(text) is not None


def is_compiled(pattern: str) -> bool:
    try:
        compile_pattern(pattern)
    except Untranslatable:
        return False
    return True


@pytest.mark.parametrize("name", SERVED)
def test_every_pattern_of_every_service_can_be_tested(name):
    model = service(name)
    shapes = map(model.shape_for, model.shape_names)
    patterns = {shape.metadata["pattern"] for shape in shapes if "pattern" in shape.metadata}
    assert [pattern for pattern in patterns if not is_compiled(pattern)] == []


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"[a-z]+", ["abc"], ["", "abc\n", "1abc", "abc1"]),
        (r"^[a-z]+$", ["abc"], ["abc\n"]),
        (r"\A\S[\p{Print}]*\z", ["a b~"], [" a", "a\n", "aé"]),
        (r"\p{ASCII}*", ["", "a\x00\x7f"], ["é"]),
        (r"[\p{Alnum}\-]+", ["aZ9-"], ["_", "é"]),
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", ["", "aé漢 ٣½:@"], ["#", "é!", "a\n"]),
        (r"[\p{L}\p{M}\p{Z}\p{S}\p{N}\p{P}]*", ["a!é€ \u0301"], ["\t", "\x00"]),
        (r"\p{L}+", ["aé漢"], ["1", " "]),
        (r"[\p{L}]*${1,128}", ["é"], ["1"]),
        (r"\d\w\s", ["1a "], ["٣a ", "1é ", "1a\u00a0"]),
        (r".*", ["any thing", "\t"], ["a\nb", "a\rb", "a\u2028b", "a\u0085"]),
        (r"a\.b", ["a.b"], ["axb"]),
        (r"[.]", ["."], ["a"]),
        (r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\t]*", ["a\t\U0001f600"], ["\n"]),
        (r"(?!\s*$).+", ["a", " a"], [" ", ""]),
        (r"a(?<!-)", ["a"], ["-"]),
        (r".*(?:[ \r\n\t].*)*", ["", "a b\n\nc\td\r"], ["a\u2028"]),
        (r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", ["a--b", "A" * 63], ["-a", "a-", "a_b", "a" * 64]),
    ],
)
def test_what_fits_and_what_does_not(pattern, good, bad):
    assert [text for text in good if not fits(pattern, text)] == []
    assert [text for text in bad if fits(pattern, text)] == []


@pytest.mark.parametrize("pattern", [r"[a[b]]", r"[a&&b]", r"\p{InGreek}", r"\Qa\E", r"\h", r"(a"])
def test_what_has_no_translation_is_refused(pattern):
    with pytest.raises(Untranslatable):
        compile_pattern(pattern)


def test_hostile_input_is_answered_at_once():
    assert not fits(r".*(?:[ \r\n\t].*)*.*", " " * 10_000 + "\u2028")
