"""The place of `sagemaker.serializers` in the SDK 3."""

from ...serializers import *  # noqa: F403
