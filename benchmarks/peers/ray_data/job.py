"""Ray Data: read_csv, map_batches with an actor for each core, write_csv."""

import tempfile
from pathlib import Path

import numpy as np
import ray
from batch_job import BLOCK_BYTES, COLUMNS, CORES, ROWS_AT_ONCE, Work, run
from booster import load
from pyarrow import csv


class Predictor:
    def __init__(self) -> None:
        self.predict = load()

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        rows = np.stack([batch[name] for name in COLUMNS], axis=1)
        return {"prediction": self.predict(rows)}


def without_header() -> dict[str, csv.WriteOptions]:
    return {"write_options": csv.WriteOptions(include_header=False)}


def work(source: Path, output: Path) -> None:
    # One file is one task, which yields blocks: small ones go to both actors while it reads on.
    rows = ray.data.read_csv(
        str(source),
        read_options=csv.ReadOptions(column_names=COLUMNS, block_size=BLOCK_BYTES),
    )
    predictions = rows.map_batches(Predictor, batch_size=ROWS_AT_ONCE, concurrency=CORES)
    # Options of pyarrow cannot be pickled, so that they are made where they are used.
    predictions.write_csv(str(output), arrow_csv_args_fn=without_header)


def prepare(mode: str) -> Work:
    ray.init(
        address="local",
        include_dashboard=False,
        num_cpus=CORES + 2,
        _temp_dir=tempfile.gettempdir(),
        object_store_memory=500 * 2**20,
        log_to_driver=False,
    )
    context = ray.data.DataContext.get_current()
    context.target_max_block_size = BLOCK_BYTES
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    return work


if __name__ == "__main__":
    run(prepare)
