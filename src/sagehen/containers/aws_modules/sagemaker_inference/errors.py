"""Errors, by AWS's names."""

import http
import textwrap
from typing import Any


class UnsupportedFormatError(Exception):
    def __init__(self, content_type: str, **kwargs: Any) -> None:
        self.message = textwrap.dedent(
            f"""Content type {content_type} is not supported by this framework.

            Please implement input_fn to to deserialize the request data or an output_fn to
            serialize the response. For more information, see the SageMaker Python SDK README."""
        )
        super().__init__(self.message, **kwargs)


class BaseInferenceToolkitError(Exception):
    """Is raised by a script to answer with a status of its own."""

    def __init__(self, status_code: int, message: str, phrase: str) -> None:
        self.status_code = status_code
        self.message = message
        self.phrase = phrase
        super().__init__(message)


class GenericInferenceToolkitError(BaseInferenceToolkitError):
    def __init__(
        self, status_code: int, message: str | None = None, phrase: str | None = None
    ) -> None:
        phrase = phrase or http.HTTPStatus(status_code).phrase
        super().__init__(status_code, message or "Invalid Request", phrase)
