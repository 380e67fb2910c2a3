"""The place of `sagemaker.deserializers` in the SDK 3."""

from ...deserializers import *  # noqa: F403
