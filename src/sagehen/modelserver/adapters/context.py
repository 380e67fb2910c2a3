"""The context that user functions may take as their last argument, as multi-model-server has it."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Context"]


class Context:
    """One request's headers, and what the answer is to carry besides its body.

    The index that several methods take is that of a request in a batch; a batch here is one.
    """

    def __init__(self, headers: Mapping[bytes, bytes], model_dir: Path) -> None:
        self._headers = headers
        self.system_properties: dict[str, Any] = {
            "model_dir": str(model_dir),
            "gpu_id": None,
            "batch_size": 1,
        }
        self.model_name = model_dir.parent.name
        self.manifest: dict[str, Any] = {}
        self.status = 200
        self.content_type = ""
        self.answer_headers: tuple[tuple[str, str], ...] = ()
        self._id = ""

    @property
    def request_processor(self) -> list["Context"]:
        return [self]

    def get_request_id(self, idx: int = 0) -> str:
        self._id = self._id or str(uuid.uuid4())
        return self._id

    def get_request_header(self, idx: int, key: str) -> str | None:
        """The header's value; names match in any case."""
        value = self._headers.get(key.lower().encode("latin-1", "replace"))
        return None if value is None else value.decode("latin-1")

    def get_all_request_header(self, idx: int) -> dict[str, str]:
        return self.get_request_properties()

    def get_request_properties(self) -> dict[str, str]:
        return {
            name.decode("latin-1"): value.decode("latin-1") for name, value in self._headers.items()
        }

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        """For example `X-Amzn-SageMaker-Custom-Attributes`, which is passed to the caller."""
        if key.lower() in ("content-length", "connection", "transfer-encoding"):
            raise ValueError(f"{key} is the server's own header.")
        if key.lower() == "content-type":
            self.content_type = value
        else:
            self.answer_headers += ((key, str(value)),)

    def set_response_content_type(self, idx: int, value: str) -> None:
        self.content_type = value

    def get_response_content_type(self, idx: int = 0) -> str:
        return self.content_type

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        """Raises ValueError for what is no final status: whoever asks would wait for another."""
        if not 200 <= int(code) < 600:
            raise ValueError(f"The status {code} is none of an answer, which are 200 to 599.")
        self.status = int(code)
