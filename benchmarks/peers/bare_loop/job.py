"""A loop in one process: read some rows, predict, write. The mode says with what.

With `-cores` behind it, XGBoost predicts with a thread for each core, and with one otherwise.
"""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from batch_job import BLOCK_BYTES, COLUMNS, CORES, ROWS_AT_ONCE, Work, run
from booster import load


def blocks(source: Path) -> Iterator[bytes]:
    """Yields whole lines."""
    with source.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block + file.readline()


def written(predictions: np.ndarray) -> bytes:
    return ("\n".join(map(repr, predictions.tolist())) + "\n").encode()


def split(source: Path, output: Path, predict) -> None:
    with output.open("wb") as file:
        for block in blocks(source):
            cells = block.replace(b"\n", b",").strip(b",").split(b",")
            rows = np.array(cells, dtype=np.float32).reshape(-1, len(COLUMNS))
            file.write(written(predict(rows)))


def loadtxt(source: Path, output: Path, predict) -> None:
    with output.open("wb") as file:
        for block in blocks(source):
            rows = np.loadtxt(io.BytesIO(block), dtype=np.float32, delimiter=",")
            file.write(written(predict(rows)))


def pandas(source: Path, output: Path, predict) -> None:
    import pandas as pd

    parts = pd.read_csv(source, header=None, dtype=np.float32, chunksize=ROWS_AT_ONCE)
    with output.open("wb") as file:
        for part in parts:
            file.write(written(predict(part.to_numpy())))


def pyarrow(source: Path, output: Path, predict) -> None:
    """Both reads and writes; with one thread."""
    import pyarrow as pa
    from pyarrow import csv

    reader = csv.open_csv(
        source,
        csv.ReadOptions(column_names=COLUMNS, block_size=BLOCK_BYTES, use_threads=False),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(COLUMNS, pa.float32())),
    )
    schema = pa.schema([("prediction", pa.float32())])
    with csv.CSVWriter(
        output, schema, write_options=csv.WriteOptions(include_header=False)
    ) as writer:
        for part in reader:
            rows = np.stack([column.to_numpy() for column in part.columns], axis=1)
            writer.write(pa.record_batch([predict(rows)], schema))


LOOPS = {"split": split, "loadtxt": loadtxt, "pandas": pandas, "pyarrow": pyarrow}


def prepare(mode: str) -> Work:
    library, _, threads = mode.partition("-")
    if library in ("pandas", "pyarrow"):
        __import__(library)
    predict = load(CORES if threads else 1)
    return lambda source, output: LOOPS[library](source, output, predict)


if __name__ == "__main__":
    run(prepare)
