"""Dask: read_csv, map_partitions, to_csv; with threads, or with a process for each core."""

from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from batch_job import BLOCK_BYTES, COLUMNS, CORES, Work, run
from booster import shared


def predict(part: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"prediction": shared()(part.to_numpy())})


def work(source: Path, output: Path) -> None:
    rows = dd.read_csv(
        str(source), header=None, names=COLUMNS, dtype=np.float32, blocksize=BLOCK_BYTES
    )
    meta = pd.DataFrame({"prediction": np.empty(0, np.float32)})
    predictions = rows.map_partitions(predict, meta=meta)
    name = lambda number: f"{number:06}"  # noqa: E731
    predictions.to_csv(f"{output}/*.csv", header=False, index=False, name_function=name)


def prepare(mode: str) -> Work:
    if mode == "processes":
        from distributed import Client

        client = Client(n_workers=CORES, threads_per_worker=1, dashboard_address=None)
        client.wait_for_workers(CORES)
    else:
        dask.config.set(scheduler="threads", num_workers=CORES)
    return work


if __name__ == "__main__":
    run(prepare)
