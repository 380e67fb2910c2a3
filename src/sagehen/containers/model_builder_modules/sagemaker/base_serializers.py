"""The module that the pickles of the SDK 2 name."""

from .serializers import *  # noqa: F403
