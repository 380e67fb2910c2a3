"""The runtime's errors: SageMaker's codes and messages, and their HTTP form."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from sagehen.frame.arns import ArnMaker
from sagehen.http1.exchange import Exchange
from sagehen.wire.errors import AwsError, endpoint_not_found, unavailable, validation_error

__all__ = [
    "COMPONENT_NOT_ALLOWED",
    "MAX_ORIGINAL_MESSAGE_BYTES",
    "PRIMARY",
    "STREAM_SHUT_DOWN",
    "ErrorFactory",
    "RuntimeRefusal",
    "answer_error",
    "asynchronous",
    "bad_http",
    "body_too_large",
    "error_body",
    "lost_session",
    "missing_target_container",
    "missing_target_model",
    "no_instance",
    "not_direct",
    "not_loaded",
    "not_multi_model",
    "not_ready",
    "not_started",
    "not_yet_known",
    "session_not_kept",
    "session_not_read",
    "standing_by",
    "still_loading",
    "stream_broken",
    "stream_timed_out",
    "throttled",
    "too_large_for_serverless",
    "too_many_wait",
    "unavailable",
    "unknown_container",
    "unknown_session",
    "validation_error",
]

MAX_ORIGINAL_MESSAGE_BYTES = 16 * 1024
"""of a container's error body, for the caller"""

_CLIENT_ERROR = "CLIENT_ERROR_FROM_MODEL"
_INTERNAL_FAILURE = "INTERNAL_FAILURE_FROM_MODEL"

PRIMARY = "primary"
"""SageMaker's name for the only container of a model"""

STREAM_SHUT_DOWN = "The gateway was stopped before the stream had ended. Try again."

COMPONENT_NOT_ALLOWED = (
    "Inference Component Name header is not allowed for endpoints to which you dont plan to "
    "deploy inference components. Please remove the Inference Component Name header and try again."
)


def stream_timed_out(container: str) -> str:
    return (
        f"Your model {container} did not complete sending the inference response in the allotted "
        "time."
    )


def stream_broken(container: str) -> str:
    return (
        f"The connection to container {container} was lost before it had sent all of the inference "
        "response."
    )


def asynchronous(endpoint: str) -> AwsError:
    """The code is SageMaker's; SageMaker's message is not known."""
    return validation_error(
        f"Endpoint {endpoint} is asynchronous (its endpoint configuration has an "
        "AsyncInferenceConfig). Call InvokeEndpointAsync, which takes requests also while the "
        "endpoint has no instance."
    )


def no_instance(endpoint: str, reason: str = "") -> AwsError:
    """`reason` says why none has started: a moment alone may not mend that."""
    waits = f"One waits to start: {reason.rstrip('.')}."
    hint = waits if reason else "Try again in a moment;"
    return unavailable(
        f"Endpoint {endpoint} has no instance that can take a request now. {hint} "
        f"DescribeEndpoint tells its state, and `sagehen logs {endpoint}` what its containers said."
    )


def not_started(endpoint: str, seconds: float, failure: str | None) -> AwsError:
    """No instance of a variant that starts on demand has started in time; `failure` says why the
    last one did not."""
    reason = f" The last start failed: {failure.rstrip('.')}." if failure else ""
    return unavailable(
        f"Endpoint {endpoint} starts an instance, but none could take this request within "
        f"{seconds:g} s (setting start_wait_seconds).{reason} Try again in a moment; `sagehen "
        f"status` shows its instances, and `sagehen logs {endpoint}` what its containers said."
    )


def too_many_wait(endpoint: str, most: int) -> AwsError:
    return unavailable(
        f"Endpoint {endpoint} starts an instance, and {most} requests wait for it already (setting "
        "max_waiting_for_start). Try again in a moment."
    )


def throttled() -> AwsError:
    """Over MaxConcurrency. SageMaker's was seen with this status and no message."""
    return AwsError("ThrottlingException", "", 400, Message=None)


def too_large_for_serverless(body_bytes: int, max_bytes: int) -> AwsError:
    return validation_error(
        f"The body has {body_bytes} bytes; a serverless endpoint takes {max_bytes} at most."
    )


def not_yet_known() -> AwsError:
    return unavailable(
        "This server has just started, and does not know yet which endpoints there are and whether "
        "another server serves them. Try again in a moment."
    )


def standing_by(leader: str) -> AwsError:
    """`leader`: host and home of the server that serves the endpoints."""
    host, _, home = leader.partition(":")
    return unavailable(
        "This server stands by: the endpoints are served by the server on the machine "
        f"{host} with the home {home}, which shares its state with this one. Send invocations "
        "there; this server takes over when that one ends."
    )


def still_loading(target_model: str) -> AwsError:
    return not_ready(
        f"Model {target_model} is not ready for inference yet: it is still being loaded. Try again."
    )


def not_loaded(target_model: str, reason: str) -> AwsError:
    return unavailable(f"Model {target_model} could not be loaded: {reason} Try again in a moment.")


def not_ready(message: str) -> AwsError:
    return AwsError("ModelNotReadyException", message, 429)


def body_too_large(request_id: str, max_bytes: int) -> AwsError:
    """Answers 400, as the service model says for ValidationError; 413 was only seen in 2018, with
    another text (`HTTP content length exceeded …`)."""
    return validation_error(
        f"Request {request_id} has oversize body. At most {max_bytes} bytes are taken (setting "
        "max_invocation_body_bytes); an asynchronous endpoint takes larger inputs from S3."
    )


def missing_target_model(request_id: str) -> AwsError:
    return validation_error(
        f"Request {request_id} is missing a target model header. Invocations of a multi-model "
        "endpoint name the model by TargetModel."
    )


def not_multi_model(endpoint: str) -> AwsError:
    return validation_error(
        f"Endpoint {endpoint} is not a multi-model endpoint and does not support target model "
        "header."
    )


def missing_target_container(request_id: str, hostnames: Iterable[str]) -> AwsError:
    """The wording is ours, as in the next two functions: SageMaker's is not known."""
    return validation_error(
        f"Request {request_id} is missing a target container hostname header. Invocations of an "
        "endpoint whose containers are invoked directly name one by TargetContainerHostname: "
        f"{', '.join(hostnames)}."
    )


def unknown_container(endpoint: str, hostname: str, hostnames: Iterable[str]) -> AwsError:
    return validation_error(
        f"Endpoint {endpoint} has no container {hostname}. It has: {', '.join(hostnames)}."
    )


def not_direct(endpoint: str) -> AwsError:
    return validation_error(
        f"Endpoint {endpoint} is not configured for direct invocation and does not support target "
        "container hostname header."
    )


def unknown_session(session_id: str, endpoint: str) -> AwsError:
    """The wording is ours: SageMaker's is not known."""
    return validation_error(
        f"Session {session_id} of endpoint {endpoint} is not known: it was never begun, has "
        "expired or was closed. Begin a new one with the SessionId NEW_SESSION."
    )


def lost_session(session_id: str, endpoint: str) -> AwsError:
    """The wording is ours: SageMaker's is not known."""
    return validation_error(
        f"The instance that held session {session_id} of endpoint {endpoint} is gone, and the "
        "session with it. Begin a new one with the SessionId NEW_SESSION."
    )


def session_not_kept(error: OSError) -> AwsError:
    """The container has begun or closed a session, but its file cannot be written."""
    return unavailable(f"The session cannot be kept: {error.strerror}. Try again in a moment.")


def session_not_read(error: OSError) -> AwsError:
    """The session may exist: this process may be out of file descriptors."""
    return unavailable(f"The session cannot be read: {error.strerror}. Try again in a moment.")


def bad_http(message: str, status: int = 400) -> AwsError:
    return AwsError("BadRequestException", message, status)


def error_body(error: AwsError) -> bytes:
    """SDKs fill `Message` of a modelled error from the capitalised key."""
    return msgspec.json.encode({"Message": error.message, **error.members})


@dataclass(frozen=True)
class ErrorFactory:
    """Makes errors whose messages name the account and the region."""

    account_id: str
    region: str
    partition: str = ""
    """of ARNs; empty: the region's own"""

    def endpoint_not_found(self, name: str) -> AwsError:
        return endpoint_not_found(name, self.account_id)

    def answered_with_error(
        self, endpoint: str, container: str, status: int, body: bytes, whole: bool = True
    ) -> AwsError:
        """`whole`: whether `body` is complete."""
        is_client_error = 400 <= status < 500
        original = body.decode("utf-8", "replace")
        rest = "" if whole else " and could not load the entire response body"
        side = "client" if is_client_error else "server"
        return self._model_error(
            endpoint,
            f'Received {side} error ({status}) from {container} with message "{original}"{rest}.',
            status,
            original,
            _CLIENT_ERROR if is_client_error else _INTERNAL_FAILURE,
        )

    def timed_out(self, endpoint: str, container: str) -> AwsError:
        original = (
            f"Your invocation timed out while waiting for a response from container {container}. "
            "Review the latency metrics for each container in Amazon CloudWatch, resolve the "
            "issue, and try again."
        )
        return self._model_error(
            endpoint,
            f'Received server error (0) from {container} with message "{original}".',
            0,
            original,
            _INTERNAL_FAILURE,
        )

    def no_answer(self, endpoint: str, container: str, reason: str | None = None) -> AwsError:
        """`reason`: why the container ended, which SageMaker would not say."""
        original = (
            f"Amazon SageMaker could not get a response from the {endpoint} endpoint. This can "
            "occur when CPU or memory utilization is high. To check your utilization, see Amazon "
            "CloudWatch. To fix this problem, use an instance type with more CPU capacity or "
            "memory." + (f" Here: {reason}." if reason else "")
        )
        name = "model" if container == PRIMARY else container
        return self._model_error(
            endpoint,
            f'Received server error (0) from {name} with message "{original}".',
            0,
            original,
            _INTERNAL_FAILURE,
        )

    def too_large_between(
        self, endpoint: str, containers: tuple[str, str], status: int, size: int, limit: int
    ) -> AwsError:
        sender, receiver = containers
        original = (
            f"Received response from {sender} with status code {status}. However, the request "
            f"payload from {sender} to {receiver} is {size} bytes, which has exceeded the maximum "
            f"limit of {limit / 2**20:g} MB."
        )
        return self._model_error(endpoint, original, status, original, _INTERNAL_FAILURE)

    def _model_error(
        self, endpoint: str, message: str, status: int, original: str, code: str
    ) -> AwsError:
        group = f"/aws/sagemaker/Endpoints/{endpoint}"
        reference = (
            f"See https://{self.region}.console.aws.amazon.com/cloudwatch/home?region={self.region}"
            f"#logEventViewer:group={group} in account {self.account_id} for more information. "
            # The console named above does not know this server.
            f"Here: sagehen logs {endpoint}"
        )
        return AwsError(
            "ModelError",
            f"{message} {reference}",
            424,
            OriginalStatusCode=status,
            OriginalMessage=original,
            LogStreamArn=ArnMaker(self.account_id, self.region, self.partition).log_group(group),
            ErrorCode=code,
        )


def answer_error(exchange: Exchange, error: AwsError) -> None:
    """Sends the code in a header and the rest as JSON, as SDKs expect."""
    status = error.status or 400
    fields = b"x-amzn-ErrorType: %b\r\nContent-Type: application/json\r\n" % error.code.encode()
    if status == 503:
        fields += b"Retry-After: 1\r\n"
    exchange.answer(status, fields, error_body(error))


class RuntimeRefusal:
    """A handler that answers an error without waiting for the body."""

    def __init__(self, exchange: Exchange, error: AwsError) -> None:
        self._exchange = exchange
        self._error = error

    def begin(self) -> None:
        if not self._exchange.has_body and not self._exchange.fault:
            self._exchange.is_whole = True
        answer_error(self._exchange, self._error)

    def body(self, data: bytes) -> None: ...

    def whole(self) -> None: ...

    def client_full(self) -> None: ...

    def client_drained(self) -> None: ...

    def client_gone(self) -> None: ...
