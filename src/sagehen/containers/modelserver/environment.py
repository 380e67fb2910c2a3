"""Reads the container's settings from its environment variables."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sagehen.base.errors import SettingError
from sagehen.containers.modelserver.gpus import read_gpu_fraction, visible_gpus, worker_gpu
from sagehen.containers.modelserver.serving.batch_limits import BatchLimits, read_batch_limits
from sagehen.containers.variables import (
    non_negative,
    positive,
    read_log_level,
    seconds,
    switch,
)

__all__ = [
    "Bind",
    "Environment",
    "HuggingFaceSettings",
    "TensorFlowSettings",
    "read_environment",
    "read_hugging_face",
    "set_up_log",
    "unify_names",
]

MAX_SLOTS = 999_999
_OWN_HANDLER = "sagemaker_inference.default_handler_service"


def unify_names(environ: Mapping[str, str]) -> dict[str, str]:
    """Renames variables with several names. Raises SettingError for unsupported handlers."""
    handler = environ.get("SAGEMAKER_HANDLER", "")
    if handler not in ("", _OWN_HANDLER):
        raise SettingError(
            f"SAGEMAKER_HANDLER is {handler!r}, but handlers of multi-model-server are not run "
            "here. Put model_fn and predict_fn, or transform_fn, into code/inference.py."
        )
    renamed = dict(environ)
    if seconds := environ.get("SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS"):
        renamed["SAGEMAKER_MODEL_SERVER_TIMEOUT"] = seconds
    if workers := environ.get("SAGEMAKER_NUM_MODEL_WORKERS"):
        renamed.setdefault("SAGEMAKER_MODEL_SERVER_WORKERS", workers)
    return renamed


def set_up_log(level: int) -> None:
    logging.basicConfig(
        # The logger's name lets the platform tell these lines from the user's.
        level=level,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        force=True,
    )


@dataclass(frozen=True, kw_only=True)
class HuggingFaceSettings:
    """Settings of Hugging Face models; `""` where a variable is unset."""

    task: str
    model_id: str
    """A folder or a name on the Hugging Face Hub; overrides the archive."""
    revision: str
    token: str
    trust_remote_code: bool


def read_hugging_face(environ: Mapping[str, str]) -> HuggingFaceSettings:
    """Raises SettingError."""
    return HuggingFaceSettings(
        task=environ.get("HF_TASK", ""),
        model_id=environ.get("HF_MODEL_ID", ""),
        revision=environ.get("HF_MODEL_REVISION", ""),
        token=environ.get("HF_API_TOKEN", "") or environ.get("HF_TOKEN", ""),
        trust_remote_code=switch(environ, "HF_TRUST_REMOTE_CODE") or False,
    )


MEBIBYTE = 1 << 20
XGBOOST_MAX_BODY_BYTES = 6 * MEBIBYTE
XGBOOST_BODY_CAP_BYTES = 20 * MEBIBYTE
MAX_BODY_BYTES = 25 * MEBIBYTE
UNLIMITED_BYTES = 1 << 62
"""for transform jobs that stream whole objects: MaxPayloadInMB 0"""
CALL_QUEUE_PER_WORKER = 100
ENVIRONMENTS_BYTES = 10 * 1024 * MEBIBYTE
STARTUP_SECONDS = 600.0
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""Read when libraries are loaded."""
BATCH_QUEUE = 1000

# TS_ is TorchServe, MMS_ multi-model-server.
_WORKERS = (
    "SAGEMAKER_MODEL_SERVER_WORKERS",
    "SAGEMAKER_TS_MAX_WORKERS",
    "SAGEMAKER_TS_MIN_WORKERS",
    "TS_DEFAULT_WORKERS_PER_MODEL",
    "MMS_DEFAULT_WORKERS_PER_MODEL",
)
_TIMEOUT = (
    "SAGEMAKER_TS_RESPONSE_TIMEOUT",
    "TS_DEFAULT_RESPONSE_TIMEOUT",
    "MMS_DEFAULT_RESPONSE_TIMEOUT",
    "SAGEMAKER_MODEL_SERVER_TIMEOUT",
)
_QUEUE = ("SAGEMAKER_MODEL_JOB_QUEUE_SIZE", "TS_JOB_QUEUE_SIZE", "MMS_JOB_QUEUE_SIZE")


class Bind(NamedTuple):
    """The address to listen on: a unix socket if `path` is set, else `host` and `port`."""

    path: str = ""
    host: str = "0.0.0.0"
    port: int = 8080


class TensorFlowSettings(NamedTuple):
    """The SAGEMAKER_TFS_… settings."""

    default_model: str = ""
    """For requests that name none; `""` if there is only one."""
    intra_op_threads: int = 1
    inter_op_threads: int = 1


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The container's validated settings."""

    base_dir: Path
    adapter: str
    bind: Bind
    multi_model: bool
    program: str
    program_named: bool
    """Whether SAGEMAKER_PROGRAM is set, so that its absence is an error."""
    submit_directory: str
    default_accept: str
    """`""` for the adapter's default."""
    inference_output: tuple[str, ...]
    is_batch: bool
    """the requests are those of a transform job"""
    ensemble: bool
    max_body_bytes: int
    max_answer_bytes: int | None
    """Per answer; None: no limit."""
    timeout_seconds: float
    """Limit for one call of the model's code."""
    startup_seconds: float
    """Limit for installing a model's requirements."""
    workers: int
    """Processes for model code; each runs one request per model at a time."""
    thread_variables: Mapping[str, str]
    """Sets threads per worker, unless the user did: together at most one per core."""
    environments_dir: Path
    """Cache for requirements.txt."""
    environments_bytes: int
    """Limit for unused environments."""
    variables: Mapping[str, str]
    """The source of these settings."""
    slots: int | None
    """Requests at once, as the user has set them; None: as many as the model is ready for."""
    call_queue: int
    """Requests waiting per CallModel."""
    batch_queue: int
    """Requests waiting per BatchModel."""
    batches: BatchLimits
    threads: int
    """Per call of a framework."""
    most_threads: int
    """Per call with many rows."""
    tensorflow: TensorFlowSettings
    hugging_face: HuggingFaceSettings
    log_level: int
    gpu: int | None
    """The GPU of this process, counted among the visible ones; None without GPUs."""
    gpu_fraction: float | None
    """The container's share of its GPUs; None: all."""

    @property
    def model_dir(self) -> Path:
        return self.base_dir / "model"

    @property
    def models_dir(self) -> Path:
        return self.base_dir / "models"

    @property
    def own_environments_dir(self) -> Path:
        """Replaces `environments_dir` if that is not writable."""
        return self.base_dir / "environments"


def read_environment(environ: Mapping[str, str]) -> Environment:
    """Raises SettingError with the variable and its bad value."""
    environ = unify_names(environ)
    adapter = environ.get("SAGEHEN_ADAPTER", "python")
    multi_model = environ.get("SAGEMAKER_MULTI_MODEL", "").lower() == "true"
    cores = len(os.sched_getaffinity(0))
    # As AWS's containers: each worker holds a copy of the model, in the memory of a GPU.
    otherwise = 1 if multi_model else visible_gpus(environ) or cores
    workers = _workers(environ, adapter, otherwise)
    base_dir = Path(environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
    queue = positive(environ, *_QUEUE)
    return Environment(
        base_dir=base_dir,
        adapter=adapter,
        bind=_bind(environ),
        multi_model=multi_model,
        program=_script(environ.get("SAGEMAKER_PROGRAM", "") or "inference.py"),
        program_named=bool(environ.get("SAGEMAKER_PROGRAM")),
        submit_directory=environ.get("SAGEMAKER_SUBMIT_DIRECTORY", ""),
        default_accept=environ.get("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", ""),
        inference_output=_words(environ.get("SAGEMAKER_INFERENCE_OUTPUT", "")),
        is_batch=bool(environ.get("SAGEMAKER_BATCH")),
        ensemble=environ.get("SAGEMAKER_INFERENCE_ENSEMBLE", "true") == "true",
        max_body_bytes=_max_body_bytes(environ, adapter),
        max_answer_bytes=positive(environ, "TS_MAX_RESPONSE_SIZE", "MMS_MAX_RESPONSE_SIZE"),
        timeout_seconds=seconds(environ, *_TIMEOUT) or 60.0,
        startup_seconds=seconds(environ, "SAGEMAKER_STARTUP_TIMEOUT") or STARTUP_SECONDS,
        workers=workers,
        thread_variables={
            name: str(max(1, cores // workers)) for name in THREAD_VARIABLES if name not in environ
        },
        environments_dir=Path(environ.get("SAGEHEN_ENVIRONMENTS", "") or base_dir / "environments"),
        environments_bytes=positive(environ, "SAGEHEN_ENVIRONMENTS_BYTES") or ENVIRONMENTS_BYTES,
        variables=dict(environ),
        slots=_slots(environ),
        call_queue=queue or CALL_QUEUE_PER_WORKER * workers,
        batch_queue=queue or BATCH_QUEUE,
        batches=read_batch_limits(environ),
        threads=_threads(environ),
        most_threads=_most_threads(environ, adapter, cores),
        tensorflow=_tensorflow(environ),
        hugging_face=read_hugging_face(environ),
        log_level=read_log_level(environ),
        gpu=worker_gpu(environ),
        gpu_fraction=read_gpu_fraction(environ),
    )


def _slots(environ: Mapping[str, str]) -> int | None:
    slots = positive(environ, "SAGEHEN_SLOTS")
    return None if slots is None else min(slots, MAX_SLOTS)


def _workers(environ: Mapping[str, str], adapter: str, otherwise: int) -> int:
    workers = positive(environ, *_WORKERS)
    if workers is None and adapter == "tensorflow":
        # As in SageMaker's container; each worker may hold another copy of the model.
        return positive(environ, "SAGEMAKER_GUNICORN_WORKERS") or 1
    return workers or otherwise


def _tensorflow(environ: Mapping[str, str]) -> TensorFlowSettings:
    threads = _threads(environ)
    return TensorFlowSettings(
        default_model=environ.get("SAGEMAKER_TFS_DEFAULT_MODEL_NAME", ""),
        intra_op_threads=positive(environ, "SAGEMAKER_TFS_INTRA_OP_PARALLELISM") or threads,
        inter_op_threads=positive(environ, "SAGEMAKER_TFS_INTER_OP_PARALLELISM") or threads,
    )


def _threads(environ: Mapping[str, str]) -> int:
    """OMP_NUM_THREADS may be a list by nesting depth."""
    outermost = environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return positive({"OMP_NUM_THREADS": outermost}, "OMP_NUM_THREADS") or 1


def _most_threads(environ: Mapping[str, str], adapter: str, cores: int) -> int:
    """In transform jobs, AWS's XGBoost container has a process for each core."""
    is_chosen = "OMP_NUM_THREADS" in environ
    if adapter == "xgboost" and environ.get("SAGEMAKER_BATCH") and not is_chosen:
        return cores
    return _threads(environ)


def _bind(environ: Mapping[str, str]) -> Bind:
    text = environ.get("SAGEHEN_BIND", "")
    if not text:
        return Bind(
            port=_port(environ.get("SAGEMAKER_BIND_TO_PORT", "8080"), "SAGEMAKER_BIND_TO_PORT")
        )
    kind, _, rest = text.partition(":")
    if kind == "unix" and rest:
        return Bind(path=rest)
    host, _, port = rest.rpartition(":")
    if kind == "tcp" and host:
        return Bind(host=host, port=_port(port, "SAGEHEN_BIND"))
    raise SettingError(f"SAGEHEN_BIND is {text!r}; it must be unix:/path or tcp:host:port.")


def _port(text: str, name: str) -> int:
    if text.isascii() and text.isdigit() and int(text) < 65536:
        return int(text)
    raise SettingError(f"{name} has the port {text!r}; a port is a number from 0 to 65535.")


def _max_body_bytes(environ: Mapping[str, str], adapter: str) -> int:
    mebibytes = non_negative(environ, "SAGEMAKER_MAX_PAYLOAD_IN_MB")
    payload = UNLIMITED_BYTES if mebibytes == 0 else mebibytes and mebibytes * MEBIBYTE
    size = (
        positive(environ, "MAX_CONTENT_LENGTH", "SAGEMAKER_MAX_REQUEST_SIZE")
        or payload
        or positive(environ, "TS_MAX_REQUEST_SIZE", "MMS_MAX_REQUEST_SIZE")
    )
    if adapter == "xgboost":
        return min(size or XGBOOST_MAX_BODY_BYTES, XGBOOST_BODY_CAP_BYTES)
    return size or MAX_BODY_BYTES


def _script(program: str) -> str:
    return program if program.endswith(".py") else f"{program}.py"


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.replace(" ", "").lower().split(",") if word)
