"""Handles signed S3 requests, with bodies streaming both ways."""

from collections.abc import AsyncIterator

from sagehen.frame.context import RequestContext
from sagehen.services.s3.acl import check_expected_owner
from sagehen.services.s3.errors import not_implemented
from sagehen.services.s3.http.attributes import refuse_unknown
from sagehen.services.s3.http.exchange import (
    BodyStream,
    S3Exchange,
    read_target,
    with_hoisted_headers,
)
from sagehen.services.s3.http.xml import check_version
from sagehen.services.s3.operations import OPERATIONS, find_operation
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request, Response
from sagehen.wire.serialize import HOST_ID, serialize_error
from sagehen.wire.services import service
from sagehen.wire.signatures.sigv4 import Identity

__all__ = ["handle"]


async def handle(
    request: Request, stream: AsyncIterator[bytes], call: RequestContext, identity: Identity
) -> Response:
    """Handles a request with a verified signature but an unverified body. The first read of
    `stream` makes the client send the body."""
    body = BodyStream(stream)
    try:
        response = await _answer(request, body, call, identity)
    except AwsError as error:
        response = serialize_error(service("s3"), None, error, call.request_id)
        if not body.begun and "expect" in request.headers:
            # With `Expect`, the client may or may not send the body next. Without it the body is
            # discarded: closing early could lose the response.
            response.headers["connection"] = "close"
    response.headers.setdefault("x-amz-request-id", call.request_id)
    response.headers.setdefault("x-amz-id-2", HOST_ID)
    return response


async def _answer(
    request: Request, body: BodyStream, call: RequestContext, identity: Identity
) -> Response:
    bucket, key, query = read_target(request)
    request = with_hoisted_headers(request, query)
    name = find_operation(request.method, bucket, key, query, request.headers)
    exchange = S3Exchange(request, query, bucket, key, body, call, identity)
    act = OPERATIONS.get(name)
    if act is None:
        raise not_implemented(name)
    refuse_unknown(request.headers)
    if key:
        check_version(query, key)
    check_expected_owner(exchange)
    return await act(exchange)
