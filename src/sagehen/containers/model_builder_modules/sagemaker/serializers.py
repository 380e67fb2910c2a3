"""Objects to bodies, by the names of the SDK."""

import csv
import io
import json
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

__all__ = [
    "BaseSerializer",
    "CSVSerializer",
    "DataSerializer",
    "IdentitySerializer",
    "JSONLinesSerializer",
    "JSONSerializer",
    "NumpySerializer",
    "SimpleBaseSerializer",
    "StringSerializer",
    "TorchTensorSerializer",
]


class BaseSerializer(ABC):
    @abstractmethod
    def serialize(self, data: Any) -> Any: ...


class SimpleBaseSerializer(BaseSerializer):
    def __init__(self, content_type: str = "application/json") -> None:
        self.content_type = content_type

    @property
    def CONTENT_TYPE(self) -> str:  # noqa: N802
        return self.content_type


class CSVSerializer(SimpleBaseSerializer):
    def __init__(self, content_type: str = "text/csv") -> None:
        super().__init__(content_type)

    def serialize(self, data: Any) -> Any:
        if hasattr(data, "read"):
            return data.read()
        if hasattr(data, "to_csv"):
            return data.to_csv(header=False, index=False)
        if isinstance(data, str):
            return data
        if isinstance(data, list | np.ndarray) and len(data) and _is_sequence(data[0]):
            return "\n".join(map(_csv_row, data))
        return _csv_row(data)


def _is_sequence(row: Any) -> bool:
    return hasattr(row, "__iter__") and hasattr(row, "__getitem__")


def _csv_row(row: Any) -> str:
    if isinstance(row, str):
        return row
    values = row.flatten() if isinstance(row, np.ndarray) else row
    if len(values) == 0:
        raise ValueError("Cannot serialize empty array")
    text = io.StringIO()
    csv.writer(text).writerow(values)
    return text.getvalue().rstrip("\r\n")


class NumpySerializer(SimpleBaseSerializer):
    def __init__(self, dtype: Any = None, content_type: str = "application/x-npy") -> None:
        super().__init__(content_type)
        self.dtype = dtype

    def serialize(self, data: Any) -> bytes:
        if hasattr(data, "read"):
            return bytes(data.read())
        array = np.array(data, self.dtype) if isinstance(data, list) else np.asarray(data)
        if array.size == 0:
            raise ValueError("Cannot serialize empty array.")
        buffer = io.BytesIO()
        np.save(buffer, array)
        return buffer.getvalue()


class JSONSerializer(SimpleBaseSerializer):
    def serialize(self, data: Any) -> Any:
        if hasattr(data, "read"):
            return data.read()
        if isinstance(data, dict):
            data = {name: _without_array(value) for name, value in data.items()}
        return json.dumps(_without_array(data))


def _without_array(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


class IdentitySerializer(SimpleBaseSerializer):
    def __init__(self, content_type: str = "application/octet-stream") -> None:
        super().__init__(content_type)

    def serialize(self, data: Any) -> Any:
        return data


class JSONLinesSerializer(SimpleBaseSerializer):
    def __init__(self, content_type: str = "application/jsonlines") -> None:
        super().__init__(content_type)

    def serialize(self, data: Any) -> Any:
        if isinstance(data, str):
            return data
        return data.read() if hasattr(data, "read") else "\n".join(map(json.dumps, data))


class DataSerializer(SimpleBaseSerializer):
    """Bytes, or the path of a file with them."""

    def __init__(self, content_type: str = "file-path/raw-bytes") -> None:
        super().__init__(content_type)

    def serialize(self, data: Any) -> bytes:
        if isinstance(data, str):
            try:
                with open(data, "rb") as file:
                    return file.read()
            except OSError as error:
                raise ValueError(f"Could not open/read file: {data}. {error}") from error
        if isinstance(data, bytes):
            return data
        if isinstance(data, dict) and "data" in data:
            return self.serialize(data["data"])
        raise ValueError(f"Object of type {type(data)} is not Data serializable.")


class StringSerializer(SimpleBaseSerializer):
    def __init__(self, content_type: str = "text/plain") -> None:
        super().__init__(content_type)

    def serialize(self, data: Any) -> bytes:
        if isinstance(data, str):
            return data.encode()
        raise ValueError(f"Object of type {type(data)} is not String serializable.")


class TorchTensorSerializer(SimpleBaseSerializer):
    def __init__(self, content_type: str = "tensor/pt") -> None:
        super().__init__(content_type)
        self.numpy_serializer = NumpySerializer()

    def serialize(self, data: Any) -> bytes:
        """The pickles of the SDK hold the class Tensor as `torch_tensor`, which is not needed."""
        return self.numpy_serializer.serialize(data.detach().numpy())
