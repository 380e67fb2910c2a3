"""Spark in local mode: read.csv, mapInPandas over Arrow, write.csv."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from batch_job import BLOCK_BYTES, COLUMNS, CORES, ROWS_AT_ONCE, Work, run
from booster import shared
from pyspark.sql import SparkSession


def predict(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for part in parts:
        yield pd.DataFrame({"prediction": shared()(part.to_numpy(np.float32))})


def warm_up(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    shared()
    yield from parts


def prepare(mode: str) -> Work:
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.files.maxPartitionBytes", BLOCK_BYTES)
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS_AT_ONCE)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    # The workers start, and import what they need.
    spark.range(CORES, numPartitions=CORES).mapInPandas(warm_up, "id long").collect()
    schema = ", ".join(f"{name} float" for name in COLUMNS)

    def work(source: Path, output: Path) -> None:
        rows = spark.read.schema(schema).csv(str(source))
        rows.mapInPandas(predict, "prediction float").write.csv(str(output))

    return work


if __name__ == "__main__":
    run(prepare)
