"""Passes settings to a server's processes as plain values.

Importing the validation would cost each process 8 MiB and start-up time.
"""

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, cast

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["pickle_settings", "unpickle_settings", "with_values"]


class _UnpickledSettings:
    """A frozen stand-in for `Settings`.

    Sections and secrets, which need pydantic, are unpickled on first use.
    """

    def __init__(self, values: dict[str, Any], late: dict[str, bytes]) -> None:
        self.__dict__.update(values)
        self.__dict__["_late"] = late
        self.__dict__["_values"] = values

    def __getattr__(self, name: str) -> Any:
        # Called only for names that are not in `__dict__`.
        pickled = self.__dict__.get("_late", {}).get(name)
        if pickled is None:
            raise AttributeError(f"There is no setting {name}.")
        value = self.__dict__[name] = pickle.loads(pickled)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Settings do not change: {name}.")


def pickle_settings(settings: "Settings") -> bytes:
    """Pickles settings, also those from `unpickle_settings`."""
    if isinstance(settings, _UnpickledSettings):
        return pickle.dumps((settings._values, settings._late))
    values, late = {}, {}
    for name in _setting_names(settings):
        value = getattr(settings, name)
        if type(value).__module__.startswith(("pydantic", "sagehen.base.settings")):
            late[name] = pickle.dumps(value)
        else:
            values[name] = value
    return pickle.dumps((values, late))


def unpickle_settings(stream: BinaryIO) -> "Settings":
    """Reads settings from `pickle_settings`. Hazard: unpickles, so trust the source."""
    values, late = pickle.load(stream)
    return cast("Settings", _UnpickledSettings(values, late))


def with_values(pickled: bytes, **changes: Any) -> bytes:
    """Returns pickled settings with other plain values. Hazard: as of `unpickle_settings`."""
    values, late = pickle.loads(pickled)
    unknown = changes.keys() - values.keys()
    if unknown:
        raise AttributeError(f"There are no such plain settings: {sorted(unknown)}.")
    return pickle.dumps(({**values, **changes}, late))


def _setting_names(settings: "Settings") -> Iterator[str]:
    """Includes properties derived from settings."""
    kind = type(settings)
    yield from kind.model_fields
    for base in kind.__mro__:
        if base.__module__.startswith("sagehen.base.settings"):
            yield from (
                name for name, attribute in vars(base).items() if isinstance(attribute, property)
            )
