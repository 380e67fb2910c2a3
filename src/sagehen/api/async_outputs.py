"""Where an asynchronous request's answer will be: promised before it is made."""

from sagehen.domain.asynchronous import Output
from sagehen.domain.routes import AsyncPlan

__all__ = ["promise_output"]


def promise_output(
    plan: AsyncPlan, request_id: str, extension: str | None = None, filename: str | None = None
) -> Output:
    """The objects that may come of a request: one for its answer, one for its failure.

    Their names come from our own id, never from the InferenceId, which may be anything at all.

    Args:
        extension: S3OutputPathExtension, a folder below both paths.
        filename: Filename, taken as it is; `-error` goes before its own extension.
    """
    name = filename or f"{request_id}.out"
    stem, dot, ending = name.rpartition(".") if "." in name else (name, "", "")
    failure = plan.failure_path
    return Output(
        location=_join(plan.output_path, extension, name),
        failure_location=failure and _join(failure, extension, f"{stem}-error{dot}{ending}"),
        success_topic=plan.success_topic,
        error_topic=plan.error_topic,
        include_response_in=plan.include_response_in,
    )


def _join(path: str, extension: str | None, name: str) -> str:
    """One slash between parts, whether or not they bring some; the form of the address stays."""
    parts = (path.removesuffix("/"), (extension or "").strip("/"), name)
    return "/".join(filter(None, parts))
