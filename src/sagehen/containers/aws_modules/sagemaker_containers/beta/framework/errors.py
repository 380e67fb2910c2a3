"""Errors, by AWS's names."""


class ClientError(Exception):
    """The script's or its caller's fault."""


class UnsupportedFormatError(Exception):
    def __init__(self, content_type: str) -> None:
        self.message = (
            f"Content type {content_type} is not supported by this framework. Please implement "
            "input_fn to to deserialize the request data or an output_fn to serialize the response."
        )
        super().__init__(self.message)
