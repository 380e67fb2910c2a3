"""Times as S3's documents write them."""

from datetime import UTC, datetime

__all__ = ["iso_time"]


def iso_time(seconds: float) -> str:
    """2026-11-01T09:30:00.000Z; whole seconds, so that it agrees with the Last-Modified header."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
