"""Model data that exists, and its version."""

import pytest

from sagehen.services.sagemaker.hosting.model_data import check_model_data, model_data_version
from sagehen.wire.errors import AwsError

PREFIX = "S3Prefix"


def source(uri: str, kind: str = "S3Object") -> dict[str, object]:
    return {"ModelDataSource": {"S3DataSource": {"S3Uri": uri, "S3DataType": kind}}}


@pytest.fixture
def stored(server):
    server.put("m/model.tar.gz")
    return server


@pytest.mark.parametrize(
    "container",
    [
        {},
        {"ModelDataUrl": "s3://bucket/m/model.tar.gz"},
        {"ModelDataUrl": "s3://bucket/anything/", "Mode": "MultiModel"},
        source("s3://bucket/m/model.tar.gz"),
        source("s3://bucket/m/", PREFIX),
        {"ModelDataUrl": "https://bucket.s3.us-east-1.amazonaws.com/m/model.tar.gz"},
        {"ModelDataUrl": "https://bucket.s3-us-east-1.amazonaws.com/m/model.tar.gz"},
        {"ModelDataUrl": "https://s3-us-east-1.amazonaws.com/bucket/m/model.tar.gz"},
        {"ModelDataUrl": "https://s3.amazonaws.com/bucket/m/", "Mode": "MultiModel"},
        source("https://s3.us-east-1.amazonaws.com/bucket/m/", PREFIX),
    ],
)
def test_data_that_exists(stored, container) -> None:
    check_model_data(stored.call(), container, "arn:role")


@pytest.mark.parametrize(
    ("container", "reason"),
    [
        ({"ModelDataUrl": "s3://bucket/gone"}, "There is no object s3://bucket/gone."),
        ({"ModelDataUrl": "s3://none/x"}, "There is no bucket none."),
        ({"ModelDataUrl": "s3://none/", "Mode": "MultiModel"}, "There is no bucket none."),
        (source("s3://bucket/gone/", PREFIX), "There are no objects below s3://bucket/gone/."),
        ({"ModelDataUrl": "s3://bucket/m", "Mode": "MultiModel"}, "with a slash at its end."),
        ({"ModelDataUrl": "https://bucket/m"}, "is not the address of an object in S3"),
        ({"ModelDataUrl": "https://s3.amazonaws.com/none/x"}, "There is no bucket none."),
        (
            {"ModelDataUrl": "https://bucket.s3.amazonaws.com/m/model.tar.gz?versionId=1"},
            "without a query",
        ),
    ],
)
def test_data_that_does_not(stored, container, reason) -> None:
    with pytest.raises(AwsError) as caught:
        check_model_data(stored.call(), container, "arn:role")
    assert reason in caught.value.message


def test_the_role_is_named_as_sagemaker_does(stored) -> None:
    with pytest.raises(AwsError) as caught:
        check_model_data(stored.call(), {"ModelDataUrl": "s3://bucket/gone"}, "arn:role")
    assert 'Please ensure that the role "arn:role" exists' in caught.value.message


def test_a_version_is_the_etag_of_an_object(stored) -> None:
    url = "s3://bucket/m/model.tar.gz"
    etag = stored.call().objects.head("bucket", "m/model.tar.gz").etag
    assert model_data_version(stored.call(), {"ModelDataUrl": url}) == (url, etag)
    assert model_data_version(stored.call(), source(url)) == (url, etag)
    https = "https://bucket.s3.amazonaws.com/m/model.tar.gz"
    assert model_data_version(stored.call(), {"ModelDataUrl": https}) == (https, etag)


@pytest.mark.parametrize(
    "container",
    [
        {},
        {"ModelDataUrl": "s3://bucket/m/"},
        {"ModelDataUrl": "s3://bucket/m/model.tar.gz", "Mode": "MultiModel"},
        {"ModelDataUrl": "s3://bucket/gone"},
        {"ModelDataUrl": "https://host/key"},
    ],
)
def test_what_has_no_version(stored, container) -> None:
    assert model_data_version(stored.call(), container) is None
