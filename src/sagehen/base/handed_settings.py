"""The settings as the processes of a server are handed them: values, without what checks them.

What checks settings takes 8 MiB of each process that imports it, and a part of its start.
"""

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, cast

if TYPE_CHECKING:
    from sagehen.base.settings import Settings

__all__ = ["hand_over", "take_over"]


class _HandedSettings:
    """Reads as `Settings` does; frozen, too.

    A value of a type that pydantic makes, as a section or a secret, is unpickled when it is asked
    for: only who uses one needs pydantic.
    """

    def __init__(self, values: dict[str, Any], late: dict[str, bytes]) -> None:
        self.__dict__.update(values)
        self.__dict__["_late"] = late

    def __getattr__(self, name: str) -> Any:
        # Called only for what is not in the dictionary of the object.
        pickled = self.__dict__.get("_late", {}).get(name)
        if pickled is None:
            raise AttributeError(f"There is no setting {name}.")
        value = self.__dict__[name] = pickle.loads(pickled)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Settings do not change: {name}.")


def hand_over(settings: "Settings") -> bytes:
    """What `take_over` makes settings of again, in another process."""
    values, late = {}, {}
    for name in _handed_names(settings):
        value = getattr(settings, name)
        if type(value).__module__.startswith(("pydantic", "sagehen.base.settings")):
            late[name] = pickle.dumps(value)
        else:
            values[name] = value
    return pickle.dumps((values, late))


def take_over(handed: BinaryIO) -> "Settings":
    """Read no further than what `hand_over` has made, from which the bytes must come.

    Raises what `pickle.load` raises.
    """
    values, late = pickle.load(handed)
    return cast("Settings", _HandedSettings(values, late))


def _handed_names(settings: "Settings") -> Iterator[str]:
    """Of all settings, and of what is derived from them."""
    kind = type(settings)
    yield from kind.model_fields
    for base in kind.__mro__:
        if base.__module__.startswith("sagehen.base.settings"):
            yield from (name for name, one in vars(base).items() if isinstance(one, property))
