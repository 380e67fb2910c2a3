"""Where a server is reached, from its own machine and from others."""

import socket

import psutil
import pytest

from sagehen.base.address import client_url, reachable_urls


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:9000"),
        ("localhost", "http://127.0.0.1:9000"),
        ("0.0.0.0", "http://127.0.0.1:9000"),
        ("::", "http://[::1]:9000"),
        ("192.168.1.7", "http://192.168.1.7:9000"),
    ],
)
def test_clients_on_this_machine_get_an_address(host, url):
    assert client_url(host, 9000) == url


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_nobody_else_reaches_a_loopback_address(host):
    assert reachable_urls(host, 9000) == []


@pytest.mark.parametrize(
    ("host", "url"),
    [("192.168.1.7", "http://192.168.1.7:9000"), ("2001:db8::1", "http://[2001:db8::1]:9000")],
)
def test_one_address_is_what_it_is(host, url):
    assert reachable_urls(host, 9000) == [url]


def test_all_addresses_are_those_of_this_machine():
    own = {
        one.address
        for addresses in psutil.net_if_addrs().values()
        for one in addresses
        if one.family is socket.AF_INET and not one.address.startswith(("127.", "169.254."))
    }
    assert {url.removeprefix("http://") for url in reachable_urls("0.0.0.0", 80)} == {
        f"{one}:80" for one in own
    }
    assert set(reachable_urls("0.0.0.0", 80)) <= set(reachable_urls("::", 80))
