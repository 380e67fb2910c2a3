"""The other sides of batch_transform.py: loops in one process, Ray Data, Dask and Spark."""

import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from environments import PEERS, environment
from sides import Failed
from transform_jobs import Times

LONGEST_SECONDS = 1200


@dataclass(frozen=True)
class Contestant:
    """A program that does the same job; both its input and its output are local files."""

    key: str
    """The name for --only."""
    name: str
    peer: str
    """the folder in peers/"""
    package: str
    mode: str = ""
    rival: str = ""
    """of a loop: which of Sagehen's sides it is compared with"""
    is_exact: bool = False
    """Reads numbers as Python does, and keeps the order of rows."""


def loop(mode: str, name: str, package: str, is_exact: bool = False) -> Contestant:
    rival = "sagehen" if mode.endswith("-cores") else "sagehen-1-thread"
    return Contestant(mode, f"loop: {name}", "bare_loop", package, mode, rival, is_exact)


CONTESTANTS = (
    loop("split", "bytes.split, numpy", "numpy", is_exact=True),
    loop("loadtxt", "numpy.loadtxt", "numpy", is_exact=True),
    loop("pandas", "pandas.read_csv", "pandas"),
    loop("pyarrow", "pyarrow.csv, both ways", "pyarrow"),
    loop("pandas-cores", "pandas.read_csv, XGBoost on all cores", "pandas"),
    loop("pyarrow-cores", "pyarrow.csv, XGBoost on all cores", "pyarrow"),
    Contestant("ray", "Ray Data", "ray_data", "ray"),
    Contestant("dask", "Dask, threads", "dask", "dask", "threads"),
    Contestant("dask-processes", "Dask, a process for each core", "dask", "dask", "processes"),
    Contestant("spark", "Spark, local mode", "spark", "pyspark"),
)


def run_contestant(
    contestant: Contestant, model: Path, source: Path, folder: Path, cache: Path
) -> tuple[Times, bytes]:
    """Returns its times and its output. Raises Failed."""
    peer_environment = environment(contestant.peer, cache)
    output = folder / "output"
    remove(output)
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    variables = {
        **os.environ,
        **peer_environment.variables,
        "BENCHMARK_MODEL": str(model),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(PEERS / "common"),
        "PYSPARK_PYTHON": str(peer_environment.tools / "python"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "TMPDIR": str(temporary),
    }
    script = str(PEERS / contestant.peer / "job.py")
    python = str(peer_environment.tools / "python")
    began = time.perf_counter()
    finished = subprocess.run(
        [python, script, str(source), str(output), contestant.mode],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_SECONDS,
    )
    whole = time.perf_counter() - began
    shutil.rmtree(temporary, ignore_errors=True)
    if finished.returncode:
        raise Failed(f"{contestant.name}: {reason(finished.stderr)}")
    work = json.loads(finished.stdout.strip().splitlines()[-1])["seconds"]
    return Times(work, whole), content_of(output)


def reason(errors: str) -> str:
    """Returns the last line about an error, or else the last one."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()] or ["no message"]
    return next((line for line in reversed(lines) if "Error" in line), lines[-1])


def content_of(output: Path) -> bytes:
    """Returns the output's files one after another."""
    if output.is_file():
        return output.read_bytes()
    names = sorted(path for path in output.iterdir() if path.suffix == ".csv")
    return b"".join(path.read_bytes() for path in names)


def remove(output: Path) -> None:
    if output.is_dir():
        shutil.rmtree(output)
    else:
        output.unlink(missing_ok=True)
