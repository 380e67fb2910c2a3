import pytest

from sagehen.gateway.admission.params import read_target


def test_an_invocation_names_its_endpoint_and_what_is_asked_of_it():
    target = read_target(b"/endpoints/a%2Db/invocations?x=1")
    assert (target.endpoint, target.action) == ("a-b", "invocations")
    assert (target.path, target.query) == ("/endpoints/a%2Db/invocations", "x=1")


@pytest.mark.parametrize("target", [b"/", b"/bucket/endpoints/a/b", b"/endpoints", b"/endpoint/a"])
def test_other_paths_name_none(target):
    assert read_target(target).endpoint == ""


def test_a_long_one_is_read_as_well():
    name = b"x" * 5000
    assert read_target(b"/endpoints/" + name + b"/invocations").endpoint == name.decode()
