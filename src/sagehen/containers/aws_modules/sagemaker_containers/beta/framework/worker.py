"""`worker.Response`, which an output_fn may return."""

from typing import Any

from . import content_types


class Response:
    """An answer, as the model server takes it from an output_fn."""

    def __init__(
        self,
        response: Any = None,
        accept: str | None = None,
        status: int = 200,
        mimetype: str | None = None,
    ) -> None:
        self.response = response
        self.status_code = status
        self.mimetype = mimetype or accept or content_types.JSON

    def get_data(self) -> Any:
        return self.response
