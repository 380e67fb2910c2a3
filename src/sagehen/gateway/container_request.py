"""The head of the request that a container gets."""

from functools import lru_cache

from sagehen.gateway.upstream import Headers

__all__ = ["container_head"]

_FORWARDED = frozenset((b"content-type", b"accept"))
_FORWARDED_PREFIX = b"x-amzn-sagemaker-"


def container_head(headers: Headers, model_name: str | None, length: int) -> bytes:
    """SageMaker's own headers and those of the content; everything else is stripped.

    Args:
        headers: of the caller's request.
        model_name: in a multi-model container, the model to call.
        length: of the body, in bytes.
    """
    target = b"/invocations" if model_name is None else b"/models/%b/invoke" % model_name.encode()
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % (target, length)
    for name, value in headers:
        if _is_forwarded(name):
            head += b"%b: %b\r\n" % (name, value)
    return head + b"\r\n"


@lru_cache(maxsize=256)
def _is_forwarded(name: bytes) -> bool:
    lower = name.lower()
    return lower in _FORWARDED or lower.startswith(_FORWARDED_PREFIX)
