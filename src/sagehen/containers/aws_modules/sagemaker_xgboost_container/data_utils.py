"""Reads the data of XGBoost's channels: CSV and libsvm, from a file or a folder."""

import os
from typing import Any

CSV = "csv"
LIBSVM = "libsvm"
_TYPES = {
    "": LIBSVM,
    CSV: CSV,
    "text/csv": CSV,
    LIBSVM: LIBSVM,
    "text/libsvm": LIBSVM,
    "text/x-libsvm": LIBSVM,
}


def get_content_type(content_type_cfg_val: str | None) -> str:
    """Returns `csv` or `libsvm`; raises ValueError for other media types."""
    name = (content_type_cfg_val or "").partition(";")[0].strip().lower()
    if name not in _TYPES:
        raise ValueError(
            f"{content_type_cfg_val} is not an accepted ContentType: csv, libsvm, text/csv, "
            "text/libsvm, text/x-libsvm. AWS's image reads Parquet and RecordIO too."
        )
    return _TYPES[name]


def validate_data_file_path(data_path: str, content_type: str) -> None:
    """Raises ValueError where there is nothing to read."""
    get_content_type(content_type)
    if not os.path.exists(data_path):
        raise ValueError(f"{data_path} is not a valid path!")
    _files(data_path)


def get_size(data_path: str, is_pipe: bool = False) -> int:
    return sum(os.path.getsize(path) for path in _files(data_path))


def get_dmatrix(
    data_path: str, content_type: str, csv_weights: int = 0, is_pipe: bool = False
) -> Any:
    """Returns a DMatrix of all files; the first column of CSV is the label.

    Args:
        csv_weights: 1 if the second column has the rows' weights.
    """
    if is_pipe:
        raise ValueError("Pipe mode is not supported here: use File mode.")
    if not os.path.exists(data_path):
        return None
    files = _files(data_path)
    if get_content_type(content_type) == CSV:
        return _of_csv(files, bool(csv_weights))
    return _of_libsvm(files)


def _files(data_path: str) -> list[str]:
    if os.path.isfile(data_path):
        return [data_path]
    paths = (
        os.path.join(folder, name)
        for folder, _, names in os.walk(data_path)
        for name in names
        if not name.startswith(".")
    )
    files = sorted(paths)
    if not files:
        raise ValueError(f"There is no data file in {data_path}.")
    return files


def _of_csv(files: list[str], has_weights: bool) -> Any:
    import numpy as np
    import xgboost

    cells = np.concatenate(
        [np.genfromtxt(path, delimiter=",", dtype=np.float32, ndmin=2) for path in files]
    )
    weights = cells[:, 1] if has_weights else None
    features = cells[:, 2 if has_weights else 1 :]
    return xgboost.DMatrix(features, label=cells[:, 0], weight=weights)


def _of_libsvm(files: list[str]) -> Any:
    import numpy as np
    import xgboost
    from scipy.sparse import csr_matrix

    labels: list[float] = []
    values: list[float] = []
    columns: list[int] = []
    ends = [0]
    for path in files:
        with open(path) as file:
            for line in file:
                label, *pairs = line.partition("#")[0].split() or [""]
                if not label:
                    continue
                labels.append(float(label.partition(":")[0]))
                for pair in pairs:
                    column, _, value = pair.partition(":")
                    if column == "qid":
                        raise ValueError("Groups (qid) are read by AWS's image only.")
                    columns.append(int(column))
                    values.append(float(value))
                ends.append(len(values))
    rows = csr_matrix((np.array(values, dtype=np.float32), columns, ends))
    return xgboost.DMatrix(rows, label=np.array(labels, dtype=np.float32))
