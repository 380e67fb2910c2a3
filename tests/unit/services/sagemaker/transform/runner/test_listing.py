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
        (b'[{"prefix": "s3://in/"}, "a", ""]', "a name is empty"),
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


async def names_of_inputs(store: MemoryStore, **spec: str) -> list[str]:
    return [item.source.key for item in await found(store, **spec)]


@pytest.mark.parametrize(
    ("uri", "path", "keys", "inputs"),
    [
        ("s3://in/", "s3://in/", ["a", "a.errors.jsonl", "a.out"], ["a"]),
        ("s3://in/d/", "s3://in/d/to", ["d/a", "d/to/a.out", "d/to/b.out"], ["d/a", "d/to/b.out"]),
        ("s3://in/d", "s3://in/d/to", ["d", "d/a", "d/to/a.out", "d/to/d.out"], ["d", "d/a"]),
        ("s3://in/par", "s3://in/part", ["part/part1.out", "part1"], ["part1"]),
        ("s3://in/", "s3://out/", ["a", "a.out"], ["a", "a.out"]),
        ("s3://in/d/", "s3://in/d/", ["d/", "d/.out"], ["d/.out"]),
        # The last is the output of no input.
        ("s3://in/", "s3://in/", ["a", "a.out", "a.out.out"], ["a", "a.out.out"]),
    ],
)
async def test_outputs_of_the_job_are_no_inputs(
    store: MemoryStore, uri: str, path: str, keys: list[str], inputs: list[str]
) -> None:
    for key in keys:
        store.objects["in", key] = b"" if key.endswith("/") else b"x"
    assert await names_of_inputs(store, input_uri=uri, output_uri=path) == inputs


async def test_a_manifest_may_name_an_output_of_the_job(store: MemoryStore) -> None:
    store.objects["in", "list"] = b'[{"prefix": "s3://in/"}, "a", "a.out"]'
    items = await found(
        store, input_type="ManifestFile", input_uri="s3://in/list", output_uri="s3://in/"
    )
    assert [(item.source.key, item.problem) for item in items] == [
        ("a", "Its output would replace another input."),
        ("a.out", None),
    ]
