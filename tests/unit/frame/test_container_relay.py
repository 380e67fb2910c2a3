"""Addresses of containers of other nodes."""

import pytest

from sagehen.frame.container_relay import (
    FrameTooLarge,
    RelayRequest,
    RemoteContainer,
    encode_message,
    locate,
    locate_report,
    read_message,
)
from sagehen.frame.container_specs import ContainerReport, InstanceReport, InstanceState


@pytest.mark.parametrize(("own", "node"), [("", ""), ("n1", ""), ("n1", "n1")])
def test_containers_of_this_machine_keep_their_addresses(own, node):
    assert locate("link:/run/i.sock", own, node, "i-1") == "link:/run/i.sock"
    assert RemoteContainer.parse("link:/run/i.sock") is None
    assert RemoteContainer.parse("tcp:127.0.0.1:8080") is None


@pytest.mark.parametrize("address", ["tcp:127.0.0.1:8080", "handoff:/run/i.sock"])
def test_those_of_others_have_none_of_their_nodes_paths_and_ports(address):
    remote = locate(address, "n1", "n2", "i-1", 1)
    assert remote == "node:n2/i-1/1"
    assert RemoteContainer.parse(remote) == ("n2", "i-1", 1)


def test_a_link_stays_one():
    remote = locate("link:/run/i.sock", "n1", "n2", "i-1")
    assert remote == "link:node:n2/i-1/0"
    assert RemoteContainer.parse(remote) == ("n2", "i-1", 0)


def test_each_container_of_a_report_has_its_number():
    report = InstanceReport(
        instance_id="i-1",
        state=InstanceState.IN_SERVICE,
        address="link:/a",
        containers=(ContainerReport(address="link:/a"), ContainerReport(address="tcp:h:1")),
        node_id="n2",
    )
    located = locate_report(report, "n1")
    assert located.address == "link:node:n2/i-1/0"
    assert [each.address for each in located.containers] == ["link:node:n2/i-1/0", "node:n2/i-1/1"]
    assert locate_report(report, "n2") is report


def test_a_message_is_read_when_it_is_whole():
    request = RelayRequest(epoch=1, instance_id="i-1", container=0)
    encoded = encode_message(request) + b"rest"
    buffer = bytearray()
    for at in range(len(encoded) - len(b"rest")):
        assert read_message(buffer, RelayRequest) is None
        buffer += encoded[at : at + 1]
    buffer += b"rest"
    assert read_message(buffer, RelayRequest) == request
    assert buffer == b"rest"


def test_a_message_that_claims_too_much_is_not_waited_for():
    with pytest.raises(FrameTooLarge):
        read_message(bytearray(b"GET / HTTP/1.1"), RelayRequest)
