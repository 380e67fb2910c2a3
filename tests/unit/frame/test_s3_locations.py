import time

import pytest

from sagehen.base.errors import Invalid
from sagehen.frame.s3_locations import Location, parse_location


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("s3://bucket/a/b.tar.gz", Location("bucket", "a/b.tar.gz")),
        ("s3://bucket/models/", Location("bucket", "models/")),
        ("s3://bucket/a?b#c%20d", Location("bucket", "a?b#c%20d")),
        ("s3://bucket/[a", Location("bucket", "[a")),
        ("s3://bucket", Location("bucket", "")),
        ("https://bucket.s3.amazonaws.com/a/b", Location("bucket", "a/b")),
        ("https://bucket.s3.eu-west-1.amazonaws.com/a%20b", Location("bucket", "a b")),
        ("https://bucket.s3-eu-west-1.amazonaws.com/a", Location("bucket", "a")),
        ("https://my.s3-bucket.s3.amazonaws.com/a", Location("my.s3-bucket", "a")),
        ("https://s3.eu-west-1.amazonaws.com/bucket/a/b", Location("bucket", "a/b")),
        ("https://s3-eu-west-1.amazonaws.com/bucket/a/b", Location("bucket", "a/b")),
        ("https://bucket.s3.dualstack.eu-west-1.amazonaws.com/a", Location("bucket", "a")),
        ("https://s3-fips.dualstack.us-east-1.amazonaws.com/bucket/a", Location("bucket", "a")),
        ("https://s3.cn-north-1.amazonaws.com.cn/bucket/a", Location("bucket", "a")),
    ],
)
def test_addresses_of_s3_are_read(url: str, location: Location) -> None:
    assert parse_location(url) == location


@pytest.mark.parametrize(
    "url",
    [
        "",
        "bucket/key",
        "s3:///key",
        "https://example.org/key",
        "https://[bucket/key",
        "https://s3.example.org/bucket/key",
        "https://bucket.s3.us-east-1.amazonaws.com.example.org/key",
        "https://s3.us-east-1.amazonaws.com/",
        "https://.s3.us-east-1.amazonaws.com/key",
        "https://bucket.s3.amazonaws.com/key?versionId=1",
        "https://bucket.s3.amazonaws.com/key#part",
        "file:///etc/passwd",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(Invalid, match="s3://bucket/key"):
        parse_location(url)


def test_long_host_takes_no_long_time() -> None:
    began = time.thread_time()
    with pytest.raises(Invalid):
        parse_location("https://s3" + "-a" * 500 + ".example.org/key")
    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize("prefix", ["models", "models/"])
def test_a_prefix_may_lack_its_slash(prefix: str) -> None:
    assert Location("bucket", prefix).below("a/b").url == "s3://bucket/models/a/b"
