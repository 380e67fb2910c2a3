"""The head of the request that a container gets."""

from sagehen.gateway.fields import ByName
from sagehen.gateway.upstream import Headers

__all__ = ["container_head", "forwarded"]

_FORWARDED = frozenset((b"content-type", b"accept"))
_FORWARDED_PREFIX = b"x-amzn-sagemaker-"


def _is_forwarded(name: bytes) -> bool:
    lower = name.lower()
    return lower in _FORWARDED or lower.startswith(_FORWARDED_PREFIX)


_goes = ByName(_is_forwarded)
"""Whether a container gets a header, by its name."""


def forwarded(headers: Headers) -> tuple[tuple[bytes, bytes], ...]:
    """SageMaker's own headers and those of the content; everything else is stripped."""
    return tuple([field for field in headers if _goes[field[0]]])


def container_head(lines: bytes, model_name: str | None, length: int) -> bytes:
    """
    Args:
        lines: of the headers that are forwarded.
        model_name: in a multi-model container, the model to call.
        length: of the body, in bytes.
    """
    target = b"/invocations" if model_name is None else b"/models/%b/invoke" % model_name.encode()
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%b\r\n" % (
        target,
        length,
        lines,
    )
