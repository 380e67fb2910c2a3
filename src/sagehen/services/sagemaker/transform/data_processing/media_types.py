"""The formats that data processing reads."""

__all__ = ["CSV", "JSON", "JSON_LINES", "PROCESSED", "media_type"]

CSV = "text/csv"
JSON = "application/json"
JSON_LINES = "application/jsonlines"
PROCESSED = (CSV, JSON, JSON_LINES)


def media_type(content_type: str | None) -> str:
    """Returns a ContentType or Accept without its parameters; an empty string for none."""
    return (content_type or "").partition(";")[0].strip().lower()
