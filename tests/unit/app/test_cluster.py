"""How a machine becomes a node of a cluster."""

import socket

import pytest

from sagehen.app.cluster import (
    join_as_server,
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


def test_the_address_for_others(make_home):
    home = make_home("home")
    assert own_host(settings_of(home.path)) == "127.0.0.1"
    assert own_host(settings_of(home.path, host="0.0.0.0", cluster_host="10.0.0.7")) == "10.0.0.7"
