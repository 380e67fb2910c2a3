"""The module that the pickles of the SDK 3 name."""

from ...serializers import *  # noqa: F403
