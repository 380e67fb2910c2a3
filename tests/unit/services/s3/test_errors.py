"""Every fault of the object store has an S3 error, and every operation is found."""

import pytest

from sagehen.base.errors import SagehenError
from sagehen.services.s3.errors import speaking_s3
from sagehen.services.s3.operations import OPERATIONS, find_operation
from sagehen.services.s3.storage import errors as faults
from sagehen.wire.errors import AwsError
from sagehen.wire.services import service

ANSWERED_WHERE_IT_HAPPENS = {"BucketExists"}


@pytest.mark.parametrize("name", sorted(set(faults.__all__) - ANSWERED_WHERE_IT_HAPPENS))
def test_no_fault_was_forgotten(name: str) -> None:
    with pytest.raises(AwsError) as caught, speaking_s3("bucket", "key"):
        raise getattr(faults, name)("why")
    assert caught.value.status in (400, 404, 409, 412, 501, 503)
    assert caught.value.message


def test_a_full_disk_is_told_as_something_to_wait_for() -> None:
    with pytest.raises(AwsError, match="make room") as caught, speaking_s3("bucket", "key"):
        raise faults.StorageFull("make room")
    assert (caught.value.code, caught.value.status) == ("ServiceUnavailable", 503)


def test_other_errors_pass() -> None:
    with pytest.raises(SagehenError), speaking_s3("bucket", "key"):
        raise SagehenError("of another kind")


def test_only_operations_of_the_model_are_answered() -> None:
    assert set(OPERATIONS) <= set(service("s3").operation_names)


@pytest.mark.parametrize(
    ("method", "query", "name"),
    [
        ("GET", {"lifecycle": ""}, "GetBucketLifecycleConfiguration"),
        ("PUT", {"versioning": ""}, "PutBucketVersioning"),
        ("GET", {"list-type": "2"}, "ListObjectsV2"),
        ("GET", {"x-id": "ListObjects"}, "ListObjects"),
        ("POST", {"acl": ""}, "POST with ?acl"),
        ("PATCH", {}, "PATCH of a bucket"),
    ],
)
def test_an_operation_is_found_by_what_is_asked(
    method: str, query: dict[str, str], name: str
) -> None:
    assert find_operation(method, "bucket", "", query, {}) == name


@pytest.mark.parametrize("names", [("acl", "tagging"), ("tagging", "acl")])
def test_a_query_names_one_operation(names: tuple[str, str]) -> None:
    """A signature says nothing of the order of parameters."""
    with pytest.raises(
        AwsError, match="Conflicting query string parameters: acl, tagging"
    ) as caught:
        find_operation("GET", "bucket", "key", dict.fromkeys(names, ""), {})
    assert (caught.value.code, caught.value.status) == ("InvalidArgument", 400)
