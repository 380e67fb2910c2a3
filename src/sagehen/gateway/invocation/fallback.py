"""Ends a request that no instance can answer, by offline results or an error, or lets it wait for
an instance to start."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from sagehen.gateway.admission import errors
from sagehen.gateway.admission.admission import Admitted
from sagehen.gateway.client.limits import Limit
from sagehen.gateway.invocation.context import InvocationContext
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.gateway.routing.placement import Placement
from sagehen.gateway.routing.sessions import Sessions
from sagehen.http1.exchange import Exchange
from sagehen.http1.fields import Headers
from sagehen.link.upstream import Upstream
from sagehen.wire.errors import AwsError

if TYPE_CHECKING:
    from sagehen.gateway.invocation.invocation import Invocation
    from sagehen.gateway.peers.peer_link import PeerCall

__all__ = [
    "answer_offline",
    "end_by_node",
    "no_instance_error",
    "record_session",
    "start_timeout",
]

_OFFLINE = b"%bContent-Type: %b\r\nx-sagehen-offline-result: true\r\n"


def answer_offline(exchange: Exchange, admitted: Admitted, body: Sequence[bytes]) -> int | None:
    """Answers from the variant's offline results, if these know every row.

    A request that a container may have begun can be answered too, unless the caller has part of the
    container's answer: a look-up changes nothing. Requests of a session depend on earlier ones.

    Returns:
        the answer's size; None if there is no answer.
    """
    variant = admitted.variant
    if variant.offline is None or exchange.begun or admitted.session_id is not None:
        return None
    fields = exchange.fields
    answer = variant.offline.find(fields.get("content-type", ""), fields.get("accept", ""), body)
    if answer is None:
        return None
    exchange.answer(200, _OFFLINE % (variant.invoked_field, answer.content_type), answer.body)
    return len(answer.body)


def no_instance_error(
    admitted: Admitted,
    load_failure: str | None,
    placement: Placement,
    context: InvocationContext,
) -> AwsError | None:
    """Returns None if the request may wait for an instance to start.

    Args:
        load_failure: why the target model could not be loaded, if that was tried.
    """
    session_id, target_model = admitted.session_id, admitted.target_model
    is_retired = admitted.instance is not None and admitted.instance.is_retired
    if session_id is not None and is_retired:
        return errors.lost_session(session_id, admitted.endpoint.name)
    if target_model is not None and load_failure is not None:
        return errors.not_loaded(target_model, load_failure)
    if not placement.can_wait_for_start:
        return errors.no_instance(admitted.endpoint.name, admitted.variant.route.not_serving)
    most = context.limits.waiting_for_start
    if admitted.variant.slot_queue.length < most:
        return None
    context.limit_hits[Limit.START_QUEUE] += 1
    return errors.too_many_wait(admitted.endpoint.name, most)


def start_timeout(admitted: Admitted, context: InvocationContext) -> AwsError:
    context.limit_hits[Limit.START_WAIT] += 1
    failure = admitted.variant.slot_queue.start_failure
    return errors.not_started(admitted.endpoint.name, context.limits.start_seconds, failure)


def end_by_node(invocation: "Invocation", upstream: Upstream) -> bool:
    """Ends a request of which another node says why it failed there; returns whether it did."""
    failure = cast("PeerCall", upstream).failure
    if failure is None:
        return False
    if not failure.is_begun:
        if failure.load_failure is not None:
            invocation.model_wait.failure = failure.load_failure
        return False
    if failure.model_status:
        invocation.fail_by_model(failure.model_status, failure.error)
    else:
        invocation.fail(failure.error)
    return True


def record_session(
    sessions: Sessions, admitted: Admitted, instance: RoutedInstance, headers: Headers
) -> bytes:
    """Returns the caller's header lines of an answer within a session. Raises AwsError."""
    assert admitted.session_id is not None
    endpoint, variant = admitted.endpoint.name, admitted.variant.route.name
    try:
        return sessions.record_answer(admitted.session_id, endpoint, variant, instance, headers)
    except OSError as error:
        raise errors.session_not_kept(error) from error
