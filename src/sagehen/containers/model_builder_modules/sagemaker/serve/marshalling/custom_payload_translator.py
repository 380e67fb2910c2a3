"""The base class of user classes that read or write bodies."""

from abc import ABC, abstractmethod
from typing import Any

CONTENT_TYPE = "application/custom"
ACCEPT_TYPE = "application/custom"


class CustomPayloadTranslator(ABC):
    def __init__(self, content_type: str = CONTENT_TYPE, accept_type: str = ACCEPT_TYPE) -> None:
        self._content_type = content_type
        self._accept_type = accept_type

    @abstractmethod
    def serialize_payload_to_bytes(self, payload: object) -> bytes: ...

    @abstractmethod
    def deserialize_payload_from_stream(self, stream: Any) -> Any: ...

    def serialize(self, payload: object, content_type: str = CONTENT_TYPE) -> bytes:
        return self.serialize_payload_to_bytes(payload)

    def deserialize(self, stream: Any, content_type: str = CONTENT_TYPE) -> Any:
        return self.deserialize_payload_from_stream(stream)

    @property
    def CONTENT_TYPE(self) -> str:  # noqa: N802
        return self._content_type

    @property
    def ACCEPT(self) -> str:  # noqa: N802
        return self._accept_type
