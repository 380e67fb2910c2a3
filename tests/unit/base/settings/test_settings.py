"""The table of settings is whole: no section hides a setting of another."""

import pytest
from pydantic import ValidationError

from sagehen.base.settings import Settings
from sagehen.base.settings.section import Section


def test_each_setting_stands_in_one_section():
    names = [
        name
        for section in Settings.__bases__
        if issubclass(section, Section)
        for name in section.model_fields
    ]
    assert sorted([*names, "inference_service"]) == sorted(Settings.model_fields)


def test_settings_do_not_change_under_a_running_program():
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.port = 1  # type: ignore[misc]
