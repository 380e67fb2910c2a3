"""Which nodes a node serves, and is served by: TLS handshakes in memory."""

import datetime
import os
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from sagehen.base.cluster_certificates import (
    Authority,
    client_context,
    issue,
    make_authority,
    peer_node_id,
    server_context,
    server_name,
    write_certificate,
)
from sagehen.base.errors import HomeError, Invalid


@pytest.fixture(scope="module")
def authority() -> Authority:
    return make_authority()


def node(folder: Path, authority: Authority, node_id: str) -> Path:
    write_certificate(folder / node_id, issue(authority, node_id))
    return folder / node_id


class Side:
    """One end of a TLS connection."""

    def __init__(self, context: ssl.SSLContext, server: str | None = None) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_side=server is None, server_hostname=server
        )
        self.is_done = False

    def step(self, other: "Side") -> None:
        try:
            if self.is_done:
                self.tls.read()
            else:
                self.tls.do_handshake()
                self.is_done = True
        except ssl.SSLWantReadError:
            pass
        finally:
            other.incoming.write(self.outgoing.read())


def connect(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> tuple[Side, Side]:
    sides = Side(client, name), Side(server)
    for _ in range(4):
        sides[0].step(sides[1])
        sides[1].step(sides[0])
    return sides


def test_two_nodes_of_a_cluster_know_each_other(tmp_path: Path, authority: Authority) -> None:
    one, two = node(tmp_path, authority, "one"), node(tmp_path, authority, "two")
    client, server = connect(client_context(one), server_context(two), server_name("two"))
    assert client.is_done
    assert server.is_done
    assert client.tls.version() == "TLSv1.3"
    assert peer_node_id(server.tls.getpeercert()) == "one"
    assert peer_node_id(client.tls.getpeercert()) == "two"


def test_a_certificate_of_another_cluster_opens_nothing(
    tmp_path: Path, authority: Authority
) -> None:
    one = node(tmp_path, authority, "one")
    stranger = node(tmp_path / "other", make_authority(), "two")
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed certificate in"):
        connect(client_context(stranger), server_context(one), server_name("one"))
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed certificate in"):
        connect(client_context(one), server_context(stranger), server_name("two"))


def test_a_client_without_a_certificate_is_refused(tmp_path: Path, authority: Authority) -> None:
    one = node(tmp_path, authority, "one")
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_verify_locations(cadata=authority.certificate_pem.decode())
    with pytest.raises(ssl.SSLError, match="peer did not return a certificate"):
        connect(bare, server_context(one), server_name("one"))


def test_a_node_that_stands_at_anothers_address_is_noticed(
    tmp_path: Path, authority: Authority
) -> None:
    one, two = node(tmp_path, authority, "one"), node(tmp_path, authority, "two")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        connect(client_context(one), server_context(two), server_name("three"))


def test_a_node_cannot_issue_certificates(tmp_path: Path, authority: Authority) -> None:
    one = issue(authority, "one")
    false = issue(Authority(one.certificate_pem, one.key_pem), "two")
    write_certificate(tmp_path / "false", false._replace(authority_pem=authority.certificate_pem))
    # With the whole chain, as whoever forged it would send it.
    file = tmp_path / "false" / "node.pem"
    chain = false.key_pem + false.certificate_pem + one.certificate_pem + one.authority_pem
    file.write_bytes(chain)
    real = node(tmp_path, authority, "three")
    with pytest.raises(ssl.SSLCertVerificationError, match="invalid CA certificate"):
        connect(client_context(file.parent), server_context(real), server_name("three"))


def test_older_versions_of_tls_are_refused(tmp_path: Path, authority: Authority) -> None:
    one = node(tmp_path, authority, "one")
    old = client_context(one)
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        connect(old, server_context(one), server_name("one"))


def test_files_are_private_and_replaced_whole(tmp_path: Path, authority: Authority) -> None:
    before = os.umask(0)
    try:
        folder = node(tmp_path, authority, "one")
        first = (folder / "node.pem").read_bytes()
        node(tmp_path, authority, "one")
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == ["node.pem"]
    assert stat.S_IMODE((folder / "node.pem").stat().st_mode) == 0o600
    assert (folder / "node.pem").read_bytes() != first


def test_certificates_last_ten_years_and_begin_before_now(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate(issue(authority, "one").certificate_pem)
    now = datetime.datetime.now(datetime.UTC)
    years = (certificate.not_valid_after_utc - now).days / 365
    assert 9.9 < years < 10.1
    assert certificate.not_valid_before_utc < now - datetime.timedelta(hours=1)


@pytest.mark.parametrize("node_id", ["", "Upper", "a.b", "a" * 41, "a_b", "a\n"])
def test_what_cannot_be_a_node(authority: Authority, node_id: str) -> None:
    with pytest.raises(Invalid, match="cannot be the id of a node"):
        issue(authority, node_id)


def test_a_key_of_another_authority_issues_nothing(authority: Authority) -> None:
    mixed = Authority(authority.certificate_pem, make_authority().key_pem)
    with pytest.raises(Invalid, match="not that of its certificate"):
        issue(mixed, "one")
    with pytest.raises(Invalid, match="cannot be read"):
        issue(Authority(b"none", b"none"), "one")


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_missing_or_broken_file_says_what_to_do(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "node.pem").write_bytes(content)
    with pytest.raises(HomeError, match=r"node\.pem cannot be used.*join the cluster again"):
        server_context(tmp_path)


def test_a_certificate_without_a_node_names_none() -> None:
    with pytest.raises(Invalid, match="names no node"):
        peer_node_id({"subjectAltName": (("DNS", "example.com"),)})
