import pytest

from sagehen.agent.instances.failures import (
    cannot_start,
    explain,
    failed_artifact,
    failed_ping,
    shorten,
)
from sagehen.base.errors import ArtifactError, ArtifactMissing, ArtifactRejected
from sagehen.frame.container_specs import InstanceOwner
from support.fleet import instance_spec


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], ""),
        (["", "  "], ""),
        (["one", "two", "three", "four"], "two | three | four"),
        (
            ["Traceback (most recent call last):", "  x", "ImportError: no houses", "bye"],
            "ImportError: no houses",
        ),
        (["botocore.exceptions.ClientError: denied"], "botocore.exceptions.ClientError: denied"),
        (
            [
                "2026-01-01 10:00:00,000 INFO sagehen.containers.modelserver.program: "
                "Serving on /x.sock."
            ],
            "",
        ),
        (
            ["2026-01-01 10:00:00,000 INFO root: half way", "INFO:     started", "so long"],
            "so long",
        ),
        (
            ["2026-01-01 10:00:00,000 INFO root: half way"],
            "2026-01-01 10:00:00,000 INFO root: half way",
        ),
        (["KeyboardInterrupt"], "KeyboardInterrupt"),
        (["12:00 Error: happened at noon"], "12:00 Error: happened at noon"),
        (
            [
                "I0000 00:00:1795314530.709962 14626 port.cc:153] oneDNN custom operations are on.",
                "2026-01-01 10:00:00,000 CRITICAL sagehen.containers.modelserver.program: "
                "The model could not be loaded: The model's archive has no code/inference.py.",
                "terminate called without an active exception",
            ],
            "The model's archive has no code/inference.py.",
        ),
        (
            [
                '  File "/home/models/code/inference.py", line 3',
                "    def model_fn(d: return 1",
                "                    ^^^^^^",
                "SyntaxError: invalid syntax",
            ],
            "SyntaxError: invalid syntax (inference.py, line 3)",
        ),
        (
            ["ModuleNotFoundError: No module named 'sagemaker_inference.errors'"],
            "ModuleNotFoundError: No module named 'sagemaker_inference.errors' "
            "(sagemaker_inference is in AWS's images and not here: name sagemaker-inference in the "
            "requirements.txt beside the script)",
        ),
        (
            ["ModuleNotFoundError: No module named 'sagemaker_xgboost_container'"],
            "ModuleNotFoundError: No module named 'sagemaker_xgboost_container' "
            "(sagemaker_xgboost_container is in AWS's images and not here: no package has it, so "
            "write the script without it)",
        ),
        (
            ["ModuleNotFoundError: No module named 'catboost'"],
            "ModuleNotFoundError: No module named 'catboost'",
        ),
        (
            [
                "Traceback (most recent call last):",
                '  File "/opt/program/wsgi.py", line 1, in <module>',
                "    import predictor",
                '  File "/opt/program/predictor.py", line 7, in <module>',
                "    model = pickle.load(file)",
                '  File "/usr/lib/python3.11/pickle.py", line 1, in load',
                "ValueError: odd",
            ],
            "ValueError: odd (predictor.py, line 7)",
        ),
        (["SyntaxError: invalid syntax"], "SyntaxError: invalid syntax"),
        (
            [
                "    raise MissingFunction(name)",
                "sagehen.containers.modelserver.x.MissingFunction: Write one.",
            ],
            "Write one.",
        ),
    ],
)
def test_the_part_of_a_log_that_tells_most(lines: list[str], told: str) -> None:
    assert explain(lines) == told


NODE = """
/srv/serve.js:4
if (mode === "crash") throw new Error("weights.bin is not there");
                      ^

Error: weights.bin is not there
    at Object.<anonymous> (/srv/serve.js:4:29)
    at Module._compile (node:internal/modules/cjs/loader:1554:14)

Node.js v20.20.2
"""
JAVA = """
Exception in thread "main" java.lang.IllegalStateException: no model
\tat Serve.load(Serve.java:9)
\tat Serve.main(Serve.java:4)
Caused by: java.nio.file.NoSuchFileException: /opt/ml/model/weights.bin
\tat java.base/sun.nio.fs.UnixException.translateToIOException(UnixException.java:92)
\t... 2 more
"""
GO = """
panic: open /opt/ml/model/weights.bin: no such file or directory

goroutine 1 [running]:
main.main()
\t/srv/serve.go:12 +0x1d
exit status 2
"""


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (NODE, "Error: weights.bin is not there"),
        (JAVA, "Caused by: java.nio.file.NoSuchFileException: /opt/ml/model/weights.bin"),
        (GO, "panic: open /opt/ml/model/weights.bin: no such file or directory"),
    ],
)
def test_the_error_above_a_stack_trace_is_told_and_not_the_trace(log: str, told: str) -> None:
    assert explain(log.splitlines()) == told


def test_a_reason_fits_describe_endpoint() -> None:
    reason = failed_ping("primary", instance_spec(), "x" * 5000)
    assert len(reason) == 1024
    assert reason.endswith("…)")
    assert shorten("short") == "short"


def test_an_instance_of_a_transform_job_is_not_called_a_variant() -> None:
    spec = instance_spec(owner=InstanceOwner.TRANSFORM_JOB)
    assert failed_ping("primary", spec, "no") == (
        "The primary container for transform job e did not pass the ping health check. Please "
        "check CloudWatch logs for this job. (no)"
    )
    assert "container for transform job e starts" in cannot_start(spec, "no")


def test_the_sentences_are_sagemakers() -> None:
    assert failed_artifact(2, "s3://b/k", ArtifactMissing("gone")).startswith(
        'Failed to download model data for container "container_2" from URL: "s3://b/k". '
    )
    assert failed_artifact(1, "s3://b/k", ArtifactError("The disk is full.")) == (
        'Failed to download model data for container "container_1" from URL: "s3://b/k". '
        "(The disk is full.)"
    )
    assert failed_artifact(1, "s3://b/k", ArtifactRejected("odd")).endswith(
        "Please ensure that the object located at the URL is a valid tar.gz archive. (odd)"
    )
    assert cannot_start(instance_spec("V"), "no such file").startswith(
        "CannotStartContainerError. Please ensure the model container for variant V starts "
        "correctly when invoked with 'docker run <image> serve'"
    )
