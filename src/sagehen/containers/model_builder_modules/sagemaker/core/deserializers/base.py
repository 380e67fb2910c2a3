"""The module that the pickles of the SDK 3 name."""

from ...deserializers import *  # noqa: F403
