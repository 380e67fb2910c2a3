"""How a machine becomes a node of a cluster."""

import socket
import threading
import time

import msgspec
import pytest

from sagehen.app import cluster
from sagehen.app.cluster import (
    join_as_server,
    lease_holder,
    load_authority,
    node_id_of,
    own_host,
    prepare_node,
    read_addresses,
    write_join_token,
)
from sagehen.base.cluster_certificates import NODE_ID, client_context
from sagehen.base.credentials import load_credentials, load_token, make_credentials, make_token
from sagehen.base.errors import HomeError, SettingError
from sagehen.base.home import prepare_home
from sagehen.placement import store
from support.node_agents import node_record
from support.state import settings_of


@pytest.fixture
def make_home(short_path):
    return lambda name: prepare_home(short_path / name)


@pytest.fixture
def first(make_home, database):
    """The first server of a cluster."""
    home = make_home("first")
    make_credentials(home.credentials)
    make_token(home.token)
    join_as_server(settings_of(home.path, database_url=str(database.engine.url)), home)
    return home


def joining(home, database, token=None):
    url = str(database.engine.url)
    return settings_of(home.path, database_url=url, cluster_token=token)


def test_the_first_server_makes_the_cluster_and_keeps_it(first, database):
    authority = load_authority(first)
    assert (first.cluster / "authority-key.pem").stat().st_mode & 0o777 == 0o600
    assert NODE_ID.fullmatch(node_id_of(first))
    before = node_id_of(first)
    join_as_server(joining(first, database), first)
    assert load_authority(first) == authority
    assert node_id_of(first) == before


def test_another_server_joins_with_the_token(first, make_home, database):
    second = make_home("second")
    with pytest.raises(SettingError, match="`sagehen cluster token` on a machine"):
        join_as_server(joining(make_home("third"), database), make_home("third"))
    join_as_server(joining(second, database, write_join_token(first)), second)
    assert load_authority(second) == load_authority(first)
    assert load_credentials(second.credentials) == load_credentials(first.credentials)
    assert load_token(second.token) == load_token(first.token)
    assert node_id_of(second) != node_id_of(first)
    client_context(second.cluster)
    # It needs the token once.
    join_as_server(joining(second, database), second)


def test_machines_of_one_hostname_are_told_apart(make_home):
    """Else the second would take over the lease of the first as its own."""
    homes = [make_home(name) for name in ("first", "second")]
    settings = settings_of(homes[0].path, cluster="state")
    one, other = (lease_holder(settings, home).partition(":")[0] for home in homes)
    assert one != other
    assert lease_holder(settings, homes[0]).startswith(f"{one}:")
    alone = lease_holder(settings_of(homes[0].path), homes[0])
    assert alone == f"{socket.gethostname()}:{homes[0].path}"


def test_a_home_with_other_keys_does_not_join(first, make_home, database):
    other = make_home("other")
    make_credentials(other.credentials)
    with pytest.raises(HomeError, match="has keys of its own"):
        join_as_server(joining(other, database, write_join_token(first)), other)


def test_a_token_that_is_none_is_refused(make_home, database):
    home = make_home("home")
    for token in ("nonsense", "bm9uc2Vuc2U="):
        with pytest.raises(SettingError, match="cluster_token is not what"):
            join_as_server(joining(home, database, token), home)
    with pytest.raises(HomeError, match="no cluster's key"):
        write_join_token(home)


def test_a_node_listens_where_it_says(first):
    with prepare_node(first, "127.0.0.1", 9000) as node:
        addresses = read_addresses(first)
        assert addresses == node.addresses
        assert addresses.gateway == "127.0.0.1:9000"
        for address in (addresses.agent, addresses.peer):
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port))).close()
    with (
        pytest.raises(SettingError, match=r"cannot listen on 192\.0\.2\.1"),
        prepare_node(first, "192.0.2.1", 9000),
    ):
        pass


def listen_before_two_free_ports():
    while True:
        first = socket.create_server(("127.0.0.1", 0))
        port = first.getsockname()[1]
        try:
            for behind in (1, 2):
                socket.create_server(("127.0.0.1", port + behind)).close()
        except (OSError, OverflowError):
            first.close()
        else:
            return first, port


def test_ports_that_a_firewall_lets_through(first):
    taken, port = listen_before_two_free_ports()
    taken.close()
    with prepare_node(first, "127.0.0.1", 9000, port) as node:
        each = node.addresses
        at = [f"127.0.0.1:{port + more}" for more in range(3)]
        assert [each.agent, each.peer, each.control] == at


def test_a_port_that_a_predecessor_still_has_is_waited_for(first):
    taken, port = listen_before_two_free_ports()
    ending = threading.Timer(0.3, taken.close)
    ending.start()
    with prepare_node(first, "127.0.0.1", 9000, port) as setup:
        assert taken.fileno() == -1, "the predecessor has closed it"
        assert setup.addresses.agent == f"127.0.0.1:{port}"
    ending.join()


def test_a_port_that_stays_taken_is_named(first, monkeypatch):
    monkeypatch.setattr(cluster, "TAKEN_SECONDS", 0)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(SettingError, match=r"in use.* Set cluster_port \(SAGEHEN_CLUSTER_PORT\)"),
        prepare_node(first, "127.0.0.1", 9000, taken.getsockname()[1]),
    ):
        pass


def test_the_address_for_others(make_home):
    def found(**settings):
        return own_host(settings_of(make_home("home").path, **settings))

    assert found() == "127.0.0.1"
    assert found(host="0.0.0.0", cluster_host="10.0.0.7") == "10.0.0.7"
    assert found(host="10.0.0.8", cluster="10.0.0.1:6379") == "10.0.0.8"
    here = "postgresql+psycopg://sagehen@/postgres?host=/run/postgresql"
    assert found(cluster="state", database_url=here, host="127.0.0.2") == "127.0.0.2"
    assert found(cluster="127.0.0.22:6379", host="127.0.0.22") == "127.0.0.22"


def test_the_address_for_others_is_that_of_the_way_to_them(make_home, monkeypatch):
    """A server that listens for users at 127.0.0.1 has another one for its cluster."""

    class Probe(socket.socket):
        def connect(self, address):
            asked.append(address[0])

        def getsockname(self):
            return ("10.9.9.9", 1)

    asked = []
    monkeypatch.setattr(socket, "socket", Probe)
    home = make_home("home").path
    for settings in (
        {"cluster": "10.0.0.1:6379"},
        {"cluster": "state", "database_url": "postgresql://me:secret@10.0.0.2/db"},
        {"cluster": "state", "database_url": "postgresql://me@/db?host=10.0.0.3"},
        {"cluster": "auto"},
        {"cluster": "state", "host": "0.0.0.0"},
    ):
        assert own_host(settings_of(home, **settings)) == "10.9.9.9"
    assert asked == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "192.0.2.1", "192.0.2.1"]


@pytest.mark.parametrize(
    ("there", "here", "message"),
    [
        ("10.0.0.1", "127.0.0.1", "would be 127.0.0.1, where no other machine"),
        ("127.0.0.1", "10.0.0.1", "has the address 127.0.0.1"),
    ],
)
def test_servers_that_cannot_reach_each_other_are_refused(
    first, make_home, database, there, here, message
):
    """Else each would hold the other to be lost, without a word."""
    record = node_record("there", agent_address=f"{there}:1", seen_at=time.time())
    with database.write() as connection:
        store.put(connection, record)
    settings = joining(first, database).model_copy(update={"cluster_host": here})
    with pytest.raises(SettingError, match=message):
        join_as_server(settings, first)
    with database.write() as connection:
        store.put(connection, msgspec.structs.replace(record, seen_at=time.time() - 3600))
    join_as_server(settings, first)
