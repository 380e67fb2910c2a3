"""One endpoint, many models: loaded on first call, unloaded when memory is short."""

import concurrent.futures
import contextlib

import pytest
from botocore.exceptions import ClientError

from support.deploy import pack
from support.server import eventually

NAMED = "def model_fn(d):\n    return {factor}\ndef predict_fn(data, m):\n    return data * m\n"


@pytest.fixture(scope="module")
def many(deploy):
    """`many(name, **environment)`: a multi-model endpoint over s3://many/<name>/."""
    deploy.s3.create_bucket(Bucket="many")
    return deploy.multi_model


def put(deploy, key: str, factor: float) -> None:
    body = pack({"code/inference.py": NAMED.format(factor=factor)})
    deploy.s3.put_object(Bucket="many", Key=key, Body=body)


def call(deploy, endpoint: str, target: str) -> str:
    answer = deploy.runtime.invoke_endpoint(
        EndpointName=endpoint, TargetModel=target, Body="[1]", ContentType="application/json"
    )
    return str(answer["Body"].read().decode())


def told(deploy, endpoint: str, name: str) -> list[float]:
    """One metric of an endpoint, of each of its instances."""
    lines = deploy.server.get("/_sagehen/metrics").decode().splitlines()
    mine = [line for line in lines if line.startswith(name + "{") and f'"{endpoint}"' in line]
    return [float(line.rpartition(" ")[2]) for line in mine]


def metric(deploy, endpoint: str, name: str) -> float:
    """One metric of an endpoint, over all its instances, as soon as the agent tells it."""
    values: list[float] = []
    eventually(lambda: bool(values.extend(told(deploy, endpoint, name)) or values))
    return sum(values)


def refused(deploy, endpoint: str, target: str) -> dict:
    with pytest.raises(ClientError) as caught:
        call(deploy, endpoint, target)
    return caught.value.response


def test_models_are_loaded_on_first_call_and_new_ones_at_once(deploy, many):
    put(deploy, "cities/one.tar.gz", 1.0)
    many("cities")
    assert call(deploy, "cities", "one.tar.gz") == "[1.0]"
    put(deploy, "cities/deep/down/two.tar.gz", 2.0)
    assert call(deploy, "cities", "deep/down/two.tar.gz") == "[2.0]"
    assert call(deploy, "cities", "one.tar.gz") == "[1.0]"


def test_a_script_apart_from_the_models_serves_them_all(deploy, many):
    script = (
        "from pathlib import Path\n"
        "def model_fn(d):\n    return float(Path(d, 'factor.txt').read_text())\n"
        "def predict_fn(data, m):\n    return data * m\n"
    )
    deploy.s3.put_object(
        Bucket="many", Key="code.tar.gz", Body=pack({"inference.py": script, "help.py": ""})
    )
    for name, factor in (("three", "3"), ("four", "4")):
        deploy.s3.put_object(
            Bucket="many", Key=f"apart/{name}.tar.gz", Body=pack({"factor.txt": factor})
        )
    many(
        "apart",
        SAGEMAKER_PROGRAM="inference.py",
        SAGEMAKER_SUBMIT_DIRECTORY="s3://many/code.tar.gz",
    )
    assert call(deploy, "apart", "three.tar.gz") == "[3.0]"
    assert call(deploy, "apart", "four.tar.gz") == "[4.0]"


def test_models_below_an_https_address(deploy, many):
    put(deploy, "https/one.tar.gz", 1.5)
    many("https", url="https://s3-us-east-1.amazonaws.com/many/https/")
    assert call(deploy, "https", "one.tar.gz") == "[1.5]"


def test_first_calls_at_once_load_the_model_once(deploy, many):
    put(deploy, "together/model.tar.gz", 5.0)
    many("together")
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: call(deploy, "together", "model.tar.gz"), range(32)))
    assert set(answers) == {"[5.0]"}
    assert metric(deploy, "together", "sagehen_model_loading_time_microseconds_count") == 1


def test_least_recently_used_models_make_room(deploy, many):
    for number in range(6):
        put(deploy, f"small/{number}.tar.gz", float(number))
    # Room for three such models: each counts as 64 KiB at least.
    many("small", SAGEHEN_MODEL_CACHE_BYTES="200000")
    for _ in range(2):
        for number in range(6):
            assert call(deploy, "small", f"{number}.tar.gz") == f"[{float(number)}]"
    assert metric(deploy, "small", "sagehen_loaded_model_count") == 3
    assert metric(deploy, "small", "sagehen_model_loading_time_microseconds_count") == 12
    assert metric(deploy, "small", "sagehen_model_unloading_time_microseconds_count") == 9
    # What was unloaded came back from disk.
    assert metric(deploy, "small", "sagehen_model_downloading_time_microseconds_count") == 6


def test_hits_waits_and_what_they_took_are_counted(deploy, many, wait_until):
    put(deploy, "watched/one.tar.gz", 1.0)
    many("watched")
    for target in ("one.tar.gz", "one.tar.gz", "one.tar.gz", "missing.tar.gz"):
        with contextlib.suppress(ClientError):
            call(deploy, "watched", target)
    counted = {
        "sagehen_model_cache_lookups_total": [4],
        "sagehen_model_cache_hits_total": [2],
        "sagehen_model_loading_wait_time_microseconds_count": [2],
        "sagehen_model_loading_time_microseconds_count": [1],
        "sagehen_model_downloading_time_microseconds_count": [1],
        "sagehen_model_unloading_time_microseconds_count": [0],
        "sagehen_loaded_model_count": [1],
    }
    # The gateway tells what it has counted once a second.
    wait_until(lambda: {name: told(deploy, "watched", name) for name in counted} == counted)
    for what in ("loading_wait", "loading", "downloading"):
        assert 0 < metric(deploy, "watched", f"sagehen_model_{what}_time_microseconds_sum") < 60e6


def test_without_cache_a_model_leaves_memory_and_disk_after_each_use(deploy, many, wait_until):
    put(deploy, "once/one.tar.gz", 7.0)
    before = artifacts(deploy)
    many("once", model_cache=False)
    unloads = "sagehen_model_unloading_time_microseconds_count"
    for times in (1, 2, 3):
        assert call(deploy, "once", "one.tar.gz") == "[7.0]"
        wait_until(lambda times=times: metric(deploy, "once", unloads) == times)
        # Others, of endpoints that were deleted, may go meanwhile.
        wait_until(lambda: artifacts(deploy) <= before)
    assert metric(deploy, "once", "sagehen_loaded_model_count") == 0
    assert metric(deploy, "once", "sagehen_model_downloading_time_microseconds_count") == 3


def artifacts(deploy) -> set[str]:
    return {path.name for path in (deploy.server.home / "artifacts").iterdir()}


@pytest.mark.parametrize(
    "target", ["missing.tar.gz", "../escape.tar.gz", "/absolute.tar.gz", "a/../../b.tar.gz"]
)
def test_bad_targets_are_refused(deploy, many, target):
    if "Endpoint" not in str(deploy.sagemaker.list_endpoints(NameContains="targets")["Endpoints"]):
        many("targets")
    answer = refused(deploy, "targets", target)
    assert answer["Error"]["Code"] == "ValidationError"
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_target_model_is_required_here_and_refused_elsewhere(deploy, many):
    many("strict")
    with pytest.raises(ClientError, match="missing a target model header"):
        deploy.invoke("strict")
    deploy.endpoint("plain")
    answer = refused(deploy, "plain", "one.tar.gz")
    assert answer["Error"]["Message"] == (
        "Endpoint plain is not a multi-model endpoint and does not support target model header."
    )


def test_broken_model_hurts_only_itself(deploy, many):
    put(deploy, "mixed/good.tar.gz", 1.0)
    deploy.s3.put_object(Bucket="many", Key="mixed/bad.tar.gz", Body=b"not an archive")
    deploy.s3.put_object(
        Bucket="many",
        Key="mixed/raises.tar.gz",
        Body=pack({"code/inference.py": "raise RuntimeError('at import')"}),
    )
    many("mixed")
    assert refused(deploy, "mixed", "bad.tar.gz")["ResponseMetadata"]["HTTPStatusCode"] in (
        400,
        424,
    )
    assert "at import" in refused(deploy, "mixed", "raises.tar.gz")["Error"]["Message"]
    assert call(deploy, "mixed", "good.tar.gz") == "[1.0]"
