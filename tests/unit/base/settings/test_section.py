"""Lists of texts in settings."""

import pytest

from sagehen.base.settings.section import items_of


@pytest.mark.parametrize(
    "value", ["a, b", "[a, b]", " a ,, 'b' ,a", ["a", "b"], ("a", " b", ""), '["a", "b"]']
)
def test_every_form_is_the_same_list(value: object) -> None:
    assert items_of(value) == ("a", "b")


@pytest.mark.parametrize("value", [1, None, {"a": 1}, ["a", 1]])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="one text with commas, or a list"):
        items_of(value)
