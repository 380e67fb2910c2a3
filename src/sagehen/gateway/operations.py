"""The operations that a gateway answers itself: what each takes, and hands on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sagehen.gateway.faults import COMPONENT_NOT_ALLOWED
from sagehen.gateway.upstream import Headers

__all__ = ["INVOKE", "INVOKE_STREAM", "Operation"]


@dataclass(frozen=True, kw_only=True)
class Operation:
    name: str
    members: Mapping[str, str]
    """Of its input, by the header that has it, in lower case."""
    refused: Mapping[str, str]
    """Why a header is not taken, by its name in lower case."""
    begins_sessions: bool
    """Its answer can tell the id of a new one."""
    for_container: Callable[[Headers], Headers] = lambda headers: headers
    """The headers that a container gets, from those forwarded."""


def _accept_renamed(headers: Headers) -> Headers:
    """The header `Accept` is what the SDK takes; the model's has a name of its own."""
    return [
        (b"Accept" if name.lower() == b"x-amzn-sagemaker-accept" else name, value)
        for name, value in headers
        if name.lower() != b"accept"
    ]


INVOKE = Operation(
    name="InvokeEndpoint",
    members={
        "content-type": "ContentType",
        "accept": "Accept",
        "x-amzn-sagemaker-custom-attributes": "CustomAttributes",
        "x-amzn-sagemaker-target-model": "TargetModel",
        "x-amzn-sagemaker-target-variant": "TargetVariant",
        "x-amzn-sagemaker-target-container-hostname": "TargetContainerHostname",
        "x-amzn-sagemaker-inference-id": "InferenceId",
        "x-amzn-sagemaker-enable-explanations": "EnableExplanations",
        "x-amzn-sagemaker-inference-component": "InferenceComponentName",
        "x-amzn-sagemaker-session-id": "SessionId",
        "x-amzn-sagemaker-prefix-aware-id": "PrefixAwareId",
    },
    refused={
        "x-amzn-sagemaker-enable-explanations": (
            "EnableExplanations is not implemented by Sagehen yet. Leave it out."
        ),
        "x-amzn-sagemaker-inference-component": COMPONENT_NOT_ALLOWED,
        "x-amzn-sagemaker-prefix-aware-id": (
            "PrefixAwareId goes with the routing strategy PREFIX_AWARE, which is not implemented "
            "by Sagehen yet. Leave it out; SessionId keeps requests on one instance."
        ),
    },
    begins_sessions=True,
)

_NOT_OF_STREAMS = ("Accept", "TargetModel", "EnableExplanations")

INVOKE_STREAM = Operation(
    name="InvokeEndpointWithResponseStream",
    members={
        "x-amzn-sagemaker-accept": "Accept",
        **{name: one for name, one in INVOKE.members.items() if one not in _NOT_OF_STREAMS},
    },
    refused={
        **INVOKE.refused,
        "x-amzn-sagemaker-target-model": (
            "InvokeEndpointWithResponseStream does not take TargetModel. Use InvokeEndpoint, or "
            "an endpoint with one model."
        ),
        "x-amzn-sagemaker-enable-explanations": (
            "InvokeEndpointWithResponseStream does not take EnableExplanations. Leave it out."
        ),
    },
    begins_sessions=False,
    for_container=_accept_renamed,
)
