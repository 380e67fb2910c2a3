"""What becomes of a request to a container of another node that cannot be reached."""

import asyncio

import pytest

from sagehen.base.clock import SYSTEM
from sagehen.base.cluster_certificates import issue, make_authority, write_certificate
from sagehen.base.errors import Unavailable
from sagehen.frame.container_relay import RelayNodes
from sagehen.frame.relay_connector import RelayConnector
from sagehen.http1.call import call, call_once
from sagehen.http1.pool import Pool

CONTAINER = "node:far/i-1/0"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    write_certificate(folder, issue(make_authority(), "near"))
    return str(folder)


def connector_of(certificates, agent_address):
    nodes = RelayNodes(epoch=1, addresses={"far": agent_address}, certificates=certificates)
    return RelayConnector(lambda: nodes)


@pytest.mark.parametrize("address", ["", "far", "127.0.0.1:", "127.0.0.1:99999999", "\ud800:80"])
async def test_an_address_that_is_none_is_a_refusal(certificates, address):
    with pytest.raises(ConnectionRefusedError, match="The node far has the address"):
        await connector_of(certificates, address)(CONTAINER, asyncio.Protocol, SYSTEM)


async def test_a_call_of_such_a_node_says_that_it_cannot_be_reached(certificates):
    connector = connector_of(certificates, "127.0.0.1:no-port")
    with pytest.raises(Unavailable, match="cannot be reached: The node far has the address"):
        await call_once(CONTAINER, "GET", "/ping", timeout_seconds=60, connector=connector)


async def test_missing_certificates_are_a_refusal(tmp_path):
    connector = connector_of(str(tmp_path / "none"), "127.0.0.1:80")
    with pytest.raises(ConnectionRefusedError):
        await connector(CONTAINER, asyncio.Protocol, SYSTEM)


async def test_whatever_goes_wrong_who_waits_for_a_connection_is_told(caplog):
    def nodes():
        raise RuntimeError("no idea where the nodes are")

    pool = Pool(CONTAINER, SYSTEM, connector=RelayConnector(nodes))
    calls = [call(pool, "GET", "/ping", b"", 60) for _ in range(40)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {str(each) for each in answers} == {"Nobody listens."}
    assert "No connection can be made to node:far/i-1/0" in caplog.text
