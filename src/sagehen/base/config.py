"""Loads the settings.

Strongest first: the command line, `SAGEHEN_<NAME>`, `sagehen.toml` in the home, the default.
"""

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from sagehen.base.errors import SettingError
from sagehen.base.settings import Settings

__all__ = ["PREFIX", "load_settings"]

PREFIX = "SAGEHEN_"
_NESTED = "__"
"""separates a section from its key in a variable's name"""


def load_settings(config: Path | None = None, **flags: Any) -> Settings:
    """Loads the settings; `flags` that are not None override environment and file.

    Raises SettingError.
    """
    overrides = {name: value for name, value in flags.items() if value is not None}
    home = Path(overrides.get("home") or os.environ.get(PREFIX + "HOME") or "~/.sagehen")
    overrides["home"] = home.expanduser().absolute()
    if chosen := config or os.environ.get(PREFIX + "CONFIG"):
        overrides["config"] = Path(chosen).expanduser().absolute()
        if not overrides["config"].is_file():
            raise SettingError(
                f"There is no settings file {overrides['config']}. Correct --config or "
                f"{PREFIX}CONFIG."
            )
    _refuse_unknown_variables()
    file = _file(overrides)
    try:
        return Settings.model_construct(**dict(_Sources(**overrides)))
    except ValidationError as error:
        raise SettingError(_describe_error(error, file)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, SettingsError) as error:
        raise SettingError(
            f"A setting in {file} or the environment is malformed: {error}"
        ) from error
    except OSError as error:
        raise SettingError(f"The settings in {file} cannot be read: {error.strerror}.") from error


def _file(overrides: Mapping[str, Any]) -> Path:
    return Path(overrides.get("config") or overrides["home"] / "sagehen.toml")


class _Sources(Settings, BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        env_nested_delimiter=_NESTED,
        env_nested_max_split=1,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        assert isinstance(init_settings, InitSettingsSource)
        return (
            init_settings,
            _Variables(settings_cls),
            _SettingsFile(settings_cls, _file(init_settings.init_kwargs)),
        )


class _Variables(EnvSettingsSource):
    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Passes values that are not JSON to their type: a list may be given with commas."""
        try:
            decoded = super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value
        return decoded if isinstance(decoded, dict | list) else value


class _SettingsFile(TomlConfigSettingsSource):
    def __call__(self) -> dict[str, Any]:
        settings = super().__call__()
        for name in ("home", "config"):
            if name in settings:
                # These locate the file, so they are needed first.
                raise SettingError(
                    f"{name} cannot be set in a settings file, because it locates that file. Use "
                    f"--{name} or {PREFIX}{name.upper()}."
                )
        return settings


def _refuse_unknown_variables() -> None:
    variables = {PREFIX + name.upper() for name in _names()}
    for name in os.environ:
        if name.startswith(PREFIX) and name not in variables:
            raise SettingError(
                f"The environment variable {name} is not a setting.{_similar(name, variables)} "
                "Correct or unset it; docs/reference/settings.md lists the settings."
            )


def _names() -> Iterator[str]:
    """Yields keys of sections as `section__key`."""
    for name, field in Settings.model_fields.items():
        yield name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from (f"{name}{_NESTED}{key}" for key in field.annotation.model_fields)


def _similar(name: str, names: Iterable[str]) -> str:
    close = get_close_matches(name, list(names), n=1)
    return f" Did you mean {close[0]}?" if close else ""


def _describe_error(error: ValidationError, file: Path) -> str:
    messages = []
    for details in error.errors():
        name = ".".join(str(part) for part in details["loc"]) or "settings"
        message = details["msg"].removeprefix("Value error, ")
        if details["type"] == "extra_forbidden":
            names = {known.replace(_NESTED, ".") for known in _names()}
            messages.append(f"{name} is not a setting (in {file}).{_similar(name, names)}")
        elif details["type"] == "dict_type":
            # The value may hold keys of an object store.
            messages.append(f"{name}: {message}: a table in the file, JSON in a variable.")
        elif isinstance(details["input"], dict):
            messages.append(f"{name}: {message}.")
        else:
            messages.append(f"{name}: {message}, but it is {details['input']!r}.")
    return "\n".join(messages)
