"""Bodies to objects, by the names of the SDK."""

import codecs
import csv
import io
import json
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

__all__ = [
    "BaseDeserializer",
    "BytesDeserializer",
    "CSVDeserializer",
    "JSONDeserializer",
    "JSONLinesDeserializer",
    "NumpyDeserializer",
    "PandasDeserializer",
    "SimpleBaseDeserializer",
    "StreamDeserializer",
    "StringDeserializer",
    "TorchTensorDeserializer",
]

_UTF8 = codecs.getreader("utf-8")


class BaseDeserializer(ABC):
    @abstractmethod
    def deserialize(self, stream: Any, content_type: str) -> Any: ...


class SimpleBaseDeserializer(BaseDeserializer):
    def __init__(self, accept: Any = "*/*") -> None:
        self.accept = accept

    @property
    def ACCEPT(self) -> tuple[str, ...]:  # noqa: N802
        return (self.accept,) if isinstance(self.accept, str) else self.accept


class StringDeserializer(SimpleBaseDeserializer):
    def __init__(self, encoding: str = "UTF-8", accept: Any = "application/json") -> None:
        super().__init__(accept)
        self.encoding = encoding

    def deserialize(self, stream: Any, content_type: str) -> str:
        return str(stream.read(), self.encoding)


class BytesDeserializer(SimpleBaseDeserializer):
    def deserialize(self, stream: Any, content_type: str) -> bytes:
        return bytes(stream.read())


class CSVDeserializer(SimpleBaseDeserializer):
    def __init__(self, encoding: str = "utf-8", accept: Any = "text/csv") -> None:
        super().__init__(accept)
        self.encoding = encoding

    def deserialize(self, stream: Any, content_type: str) -> list[list[str]]:
        return list(csv.reader(str(stream.read(), self.encoding).splitlines()))


class StreamDeserializer(SimpleBaseDeserializer):
    def deserialize(self, stream: Any, content_type: str) -> tuple[Any, str]:
        return stream, content_type


class NumpyDeserializer(SimpleBaseDeserializer):
    def __init__(
        self, dtype: Any = None, accept: Any = "application/x-npy", allow_pickle: bool = False
    ) -> None:
        super().__init__(accept)
        self.dtype = dtype
        self.allow_pickle = allow_pickle

    def deserialize(self, stream: Any, content_type: str) -> Any:
        if content_type == "text/csv":
            return np.genfromtxt(_UTF8(stream), delimiter=",", dtype=self.dtype)
        if content_type == "application/json":
            return np.array(json.load(_UTF8(stream)), dtype=self.dtype)
        if content_type in ("application/x-npy", "application/x-npz"):
            return np.load(io.BytesIO(stream.read()), allow_pickle=self.allow_pickle)
        raise ValueError(f"NumpyDeserializer cannot read content type {content_type}.")


class JSONDeserializer(SimpleBaseDeserializer):
    def __init__(self, accept: Any = "application/json") -> None:
        super().__init__(accept)

    def deserialize(self, stream: Any, content_type: str) -> Any:
        return json.load(_UTF8(stream))


class PandasDeserializer(SimpleBaseDeserializer):
    def __init__(self, accept: Any = ("text/csv", "application/json")) -> None:
        super().__init__(accept)

    def deserialize(self, stream: Any, content_type: str) -> Any:
        import pandas

        if content_type == "text/csv":
            return pandas.read_csv(stream)
        if content_type == "application/json":
            return pandas.read_json(stream)
        raise ValueError(f"PandasDeserializer cannot read content type {content_type}.")


class JSONLinesDeserializer(SimpleBaseDeserializer):
    def __init__(self, accept: Any = "application/jsonlines") -> None:
        super().__init__(accept)

    def deserialize(self, stream: Any, content_type: str) -> list[Any]:
        return [json.loads(line) for line in str(stream.read(), "utf-8").rstrip().split("\n")]


class TorchTensorDeserializer(SimpleBaseDeserializer):
    def __init__(self, accept: Any = "tensor/pt") -> None:
        super().__init__(accept)
        self.numpy_deserializer = NumpyDeserializer()

    def deserialize(self, stream: Any, content_type: str = "tensor/pt") -> Any:
        import torch

        return torch.from_numpy(self.numpy_deserializer.deserialize(stream, "application/x-npy"))
