"""The module that the pickles of the SDK 2 name."""

from .deserializers import *  # noqa: F403
