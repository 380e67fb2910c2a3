"""Makes DMatrices of request bodies, as AWS's XGBoost container does."""

from typing import Any

from sagehen.containers.modelserver.adapters.shared.table import Table, parse_csv, parse_libsvm

_CSV = ("text/csv", "csv")
_LIBSVM = ("text/libsvm", "text/x-libsvm", "libsvm")


def csv_to_dmatrix(input: Any, dtype: Any = None) -> Any:
    return _matrix(parse_csv(_bytes(input)))


def libsvm_to_dmatrix(string_like: Any) -> Any:
    return _matrix(parse_libsvm(_bytes(string_like)))


def recordio_protobuf_to_dmatrix(string_like: bytes) -> Any:
    from sagehen.containers.modelserver.adapters.shared.recordio import parse_recordio

    return _matrix(parse_recordio(string_like))


def decode(obj: Any, content_type: str) -> Any:
    """Raises ValueError for other media types."""
    name = content_type.partition(";")[0].strip().lower()
    if name in _CSV:
        return csv_to_dmatrix(obj)
    if name in _LIBSVM:
        return libsvm_to_dmatrix(obj)
    if name == "application/x-recordio-protobuf":
        return recordio_protobuf_to_dmatrix(obj)
    raise ValueError(f"{content_type} is not supported: text/csv, text/libsvm, recordio-protobuf.")


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else bytes(body)


def _matrix(table: Table) -> Any:
    import numpy as np
    import xgboost

    cells = np.array(table.cells, dtype=np.float32).reshape(table.count, table.columns)
    return xgboost.DMatrix(cells)
