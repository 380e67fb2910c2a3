"""Which requests a page of another site may have had a browser make."""

import pytest

from sagehen.frame.own_paths.access import OwnSite, is_loopback

LOCAL = {"host": "127.0.0.1:9000"}


@pytest.mark.parametrize(
    ("headers", "is_foreign"),
    [
        (LOCAL, False),
        ({**LOCAL, "origin": "http://127.0.0.1:9000"}, False),
        ({**LOCAL, "origin": "http://127.0.0.1:9000", "sec-fetch-site": "same-origin"}, False),
        ({"host": "localhost:9000", "origin": "http://localhost:9000"}, False),
        ({"host": "[::1]:9000", "origin": "http://[::1]:9000"}, False),
        ({"host": "sagehen.example:9000"}, True),
        ({**LOCAL, "origin": "http://127.0.0.1:3000"}, True),
        ({**LOCAL, "origin": "null"}, True),
        ({**LOCAL, "origin": ""}, True),
        ({**LOCAL, "sec-fetch-site": "cross-site"}, True),
        ({**LOCAL, "sec-fetch-site": "same-site"}, True),
        # A name that was led here after the page was loaded.
        ({"host": "evil.example:9000", "origin": "http://evil.example:9000"}, True),
        ({"origin": "http://127.0.0.1:9000"}, True),
    ],
)
def test_who_is_a_foreign_page(headers, is_foreign):
    assert (OwnSite().foreign_page(headers) is not None) is is_foreign


@pytest.mark.parametrize(
    ("host", "is_foreign"),
    [
        ("localhost", False),
        ("LocalHost:9000", False),
        ("127.0.0.1", False),
        ("192.168.1.7:9000", False),
        ("[fe80::1]:9000", False),
        ("sagehen.example", False),
        ("Sagehen.Example.:443", False),
        ("box", False),
        ("evil.com:9000", True),
        ("localhost.evil.com", True),
        ("127.0.0.1.evil.com", True),
        ("evil.com#localhost", True),
        ("evil.com@localhost", True),
        ("evil.com\\@localhost", True),
        ("evil.com:80@127.0.0.1", True),
        ("[::1].evil.com", True),
        ("localhost:port", True),
        ("localhost\n", True),
        ("[", True),
        ("", True),
        (None, False),
    ],
)
def test_which_names_are_this_server_s(host, is_foreign):
    site = OwnSite("https://sagehen.example", ["box"])
    headers = {} if host is None else {"host": host}
    reason = site.foreign_host(headers)
    assert (reason is not None) is is_foreign
    assert reason is None or "allowed_hosts" in reason


@pytest.mark.parametrize(
    ("host", "is_so"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1:80", True),
        ("[::1]:9000", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("192.168.1.7", False),
        ("evil.com", False),
        ("evil.com@localhost", False),
        ("[::1].evil.com", False),
    ],
)
def test_what_is_loopback(host, is_so):
    assert is_loopback(host) is is_so
