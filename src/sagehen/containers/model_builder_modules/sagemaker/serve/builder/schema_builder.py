"""SchemaBuilders as pickles have them: with serializers that ModelBuilder has chosen."""

from typing import Any

from ...deserializers import BaseDeserializer
from ...serializers import CSVSerializer, JSONSerializer


class JSONSerializerWrapper(JSONSerializer):
    def serialize(self, data: Any) -> bytes:
        return _as_bytes(super().serialize(data))


class CSVSerializerWrapper(CSVSerializer):
    def serialize(self, data: Any) -> bytes:
        return _as_bytes(super().serialize(data))


def _as_bytes(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)


class DeserializerWrapper(BaseDeserializer):
    """Reads every body as the sample's media type."""

    def __init__(self, deserializer: Any, accept: Any) -> None:
        self._deserializer = deserializer
        self._accept = accept

    def deserialize(self, stream: Any, content_type: str | None = None) -> Any:
        return self._deserializer.deserialize(stream, self._accept[0])

    @property
    def ACCEPT(self) -> str:  # noqa: N802
        return str(self._accept[0])


class SchemaBuilder:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "A SchemaBuilder is made at the client, by the SageMaker SDK. Name sagemaker in "
            "requirements.txt to make one in a container."
        )
