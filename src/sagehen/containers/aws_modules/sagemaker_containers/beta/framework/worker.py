"""`worker.Response`, which an output_fn may return."""

from typing import Any

from . import content_types


class Response(tuple[Any, str]):
    """A body with its media type: what the model server takes from an output_fn."""

    __slots__ = ()

    def __new__(
        cls,
        response: Any = None,
        accept: str | None = None,
        status: int = 200,
        mimetype: str | None = None,
    ) -> "Response":
        if status != 200:
            raise ValueError(
                f"worker.Response has the status {status}, and only 200 can be answered this way; "
                "raise sagemaker_inference.errors.GenericInferenceToolkitError instead."
            )
        return super().__new__(cls, (response, mimetype or accept or content_types.JSON))

    @property
    def response(self) -> Any:
        return self[0]

    @property
    def mimetype(self) -> str:
        return self[1]
