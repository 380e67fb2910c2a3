"""What only a foreign store does: its keys, its refusals, what it already holds."""

from collections.abc import Callable
from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore

from sagehen.base.clock import SYSTEM
from sagehen.base.errors import SettingError
from sagehen.base.home import Home
from sagehen.base.settings import Settings
from sagehen.services.s3.storage import (
    ForeignObjectStore,
    LocalObjectStore,
    open_object_store,
    open_remote,
)
from sagehen.services.s3.storage import (
    errors as faults,
)
from sagehen.services.s3.storage.records import (
    Attributes,
    ListingQuery,
    ObjectInfo,
    WriteCondition,
)
from sagehen.state.database import Database

Put = Callable[..., ObjectInfo]


def test_a_bucket_is_the_first_segment(
    foreign: ForeignObjectStore, put: Put, remote: MemoryStore
) -> None:
    obstore.put(remote, "models/there/before", b"old")
    put(foreign, "a/b", b"new")
    assert {meta["path"] for meta in obstore.list(remote).collect()} == {
        "models/a/b",
        "models/there/before",
    }
    keys = [info.key for info in foreign.list_page("models", ListingQuery()).objects]
    assert keys == ["a/b", "there/before"]


@pytest.mark.parametrize("key", ["a//b", "/a", "a/", "../up", "a/./b", "bell\x07"])
def test_keys_that_would_become_others_are_refused(
    foreign: ForeignObjectStore, put: Put, key: str
) -> None:
    with pytest.raises(faults.KeyNotStorable):
        put(foreign, key, b"x")
    with pytest.raises(faults.NoSuchKey):
        foreign.head("models", key)
    foreign.delete("models", [key])


def test_what_it_cannot_do_is_refused_by_name(foreign: ForeignObjectStore, put: Put) -> None:
    with pytest.raises(faults.NotSupported, match="tags"):
        put(foreign, "a", attributes=Attributes(tags={"a": "1"}))
    put(foreign, "a")
    with pytest.raises(faults.NotSupported, match="tags"):
        foreign.set_tags("models", "a", {})
    with pytest.raises(faults.NotSupported, match="ACL public-read"):
        put(foreign, "a", attributes=Attributes(acl="public-read"))
    with pytest.raises(faults.NotSupported, match="ACL public-read"):
        foreign.set_acl("models", "a", "public-read")
    foreign.set_acl("models", "a", "private")
    with pytest.raises(faults.NotSupported, match="storage class GLACIER"):
        put(foreign, "a", attributes=Attributes(storage_class="GLACIER"))
    by_kms = {"x-amz-server-side-encryption": "aws:kms"}
    with pytest.raises(faults.NotSupported, match="aws:kms"):
        put(foreign, "a", attributes=Attributes(headers=by_kms))
    put(foreign, "a", attributes=Attributes(headers={"x-amz-server-side-encryption": "AES256"}))
    with pytest.raises(faults.NoSuchKey):
        foreign.set_acl("models", "none", "private")
    with pytest.raises(faults.NotSupported, match="Conditional"):
        foreign.delete("models", ["a"], WriteCondition(etag="x"))


def test_a_read_never_mixes_two_objects(foreign: ForeignObjectStore, put: Put) -> None:
    put(foreign, "a", b"one")
    with foreign.open("models", "a") as found:
        put(foreign, "a", b"two")
        with pytest.raises(faults.ConditionFailed):
            list(found.chunks())


def test_long_folded_listings_go_on(foreign: ForeignObjectStore, put: Put) -> None:
    keys = [f"{folder}/{number}" for folder in ("a", "b", "c") for number in range(5)]
    for key in keys:
        put(foreign, key)
    names, after = [], ""
    while True:
        page = foreign.list_page("models", ListingQuery(delimiter="/", limit=1, after=after))
        names += page.common_prefixes
        after = page.last
        if not page.truncated:
            break
    assert names == ["a/", "b/", "c/"]
    names, after = [], ""
    while True:
        page = foreign.list_page("models", ListingQuery(limit=4, after=after))
        names += [info.key for info in page.objects]
        after = page.last
        if not page.truncated:
            break
    assert names == keys


def test_the_settings_choose(database: Database, tmp_path: Path) -> None:
    home = Home(tmp_path)
    local = open_object_store(Settings(home=home.path), home, database, SYSTEM)
    assert isinstance(local, LocalObjectStore)
    url = "s3://bucket/prefix"
    options = {"region": "us-east-1", "endpoint": "http://127.0.0.1:9"}
    there = Settings(home=home.path, object_store_url=url, object_store_options=options)
    assert isinstance(open_object_store(there, home, database, SYSTEM), ForeignObjectStore)


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("no url", {}, "relative URL without a base"),
        ("s3://bucket", {"odd": "1"}, "'odd' is not valid"),
        ("s3://bucket", {"allow_http": "maybe"}, 'failed to parse "maybe" as boolean'),
    ],
)
def test_bad_settings_are_refused_in_one_line(url, options, reason, tmp_path, capfd) -> None:
    settings = Settings(home=tmp_path, object_store_url=url, object_store_options=options)
    with pytest.raises(SettingError, match=reason) as raised:
        open_remote(settings)
    assert "\n" not in str(raised.value)
    assert capfd.readouterr().err == ""


def test_options_of_the_http_client_are_taken(tmp_path, capfd) -> None:
    options = {"region": "us-east-1", "endpoint": "http://127.0.0.1:9", "allow_http": "true"}
    open_remote(Settings(home=tmp_path, object_store_url="s3://b", object_store_options=options))
    assert capfd.readouterr().err == ""
