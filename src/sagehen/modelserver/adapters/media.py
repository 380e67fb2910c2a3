"""Media types as clients send them in Content-Type and Accept."""

__all__ = ["media_type"]


def media_type(header: str) -> str:
    """The type without its parameters, in lower case: `text/csv; label_size=1` is `text/csv`."""
    return header.partition(";")[0].strip().lower()
