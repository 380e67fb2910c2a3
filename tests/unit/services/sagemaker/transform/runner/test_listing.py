"""Which objects a job has."""

import pytest

from sagehen.services.sagemaker.transform.runner.errors import JobError
from sagehen.services.sagemaker.transform.runner.listing import InputObject, list_inputs
from support.transform_runs import MemoryStore, make_spec


async def found(store: MemoryStore, **spec: str) -> list[InputObject]:
    return [item async for item in list_inputs(make_spec(**spec), store)]


async def test_a_prefix_is_the_beginning_of_keys(store: MemoryStore) -> None:
    keys = ["data", "data.csv", "data/a", "data/b/c", "data2/d", "date"]
    for key in keys:
        store.objects["in", key] = b"x"
    items = await found(store, input_uri="s3://in/data")
    assert [item.source.key for item in items] == [
        "data",
        "data.csv",
        "data/a",
        "data/b/c",
        "data2/d",
    ]
    assert [item.output.key for item in items] == [
        "results/data.out",
        "results/data.csv.out",
        "results/a.out",
        "results/b/c.out",
        "results/data2/d.out",
    ]
    assert all(item.problem is None and item.size == 1 for item in items)


async def test_two_inputs_of_one_output_are_told(store: MemoryStore) -> None:
    for key in ("data.csv", "data/data.csv", "data/data2/d", "data2/d"):
        store.objects["in", key] = b"x"
    items = await found(store, input_uri="s3://in/data")
    problems = [item.source.key for item in items if item.problem]
    assert problems == ["data/data.csv", "data2/d"]


async def test_an_output_key_may_be_too_long(store: MemoryStore) -> None:
    store.objects["in", "data/" + "ä" * 509] = b"x"
    (item,) = await found(store)
    assert item.problem == "The key of its output would have 1030 bytes, more than 1024."


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (b"{}", "not a JSON list"),
        (b"[]", "does not begin with"),
        (b'["a"]', "does not begin with"),
        (b'[{"prefix": "nowhere"}, "a"]', "not the address of an object"),
        (b'[{"prefix": "s3://in/"}, {"a": "b"}]', "is not a name"),
        (b"\xff", "not a JSON list"),
    ],
)
async def test_a_bad_manifest_fails_the_job(
    store: MemoryStore, manifest: bytes, reason: str
) -> None:
    store.objects["in", "list"] = manifest
    with pytest.raises(JobError, match=reason) as caught:
        await found(store, input_type="ManifestFile", input_uri="s3://in/list")
    assert caught.value.error == "ClientError"


async def test_an_absent_bucket_fails_the_job(store: MemoryStore) -> None:
    with pytest.raises(JobError, match="s3://absent/x cannot be read"):
        await found(store, input_uri="s3://absent/x")


async def test_names_of_a_manifest_may_begin_with_a_slash(store: MemoryStore) -> None:
    store.objects["in", "list"] = b'[{"prefix": "s3://in/data"}, "/a", "a"]'
    items = await found(store, input_type="ManifestFile", input_uri="s3://in/list")
    assert [(item.source.key, item.output.key) for item in items] == [
        ("data/a", "results/a.out"),
        ("dataa", "results/a.out"),
    ]
    assert items[1].problem is not None
