"""The certificates by which the nodes of a cluster know one another.

The cluster's authority issues one for each node. A node serves others, and is served, only with a
certificate of the same authority: whoever has one is a member of the cluster.

`cryptography`, which takes 8 MiB, is imported only where certificates are made.
"""

import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sagehen.base.credentials import write_secret
from sagehen.base.errors import HomeError, Invalid

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = [
    "PEER_CERTIFICATE",
    "Authority",
    "NodeCertificate",
    "client_context",
    "issue",
    "make_authority",
    "peer_node_id",
    "server_context",
    "server_name",
    "speaks_for_control",
    "write_certificate",
]

NODE_ID = re.compile(r"[a-z0-9-]{1,40}")
VALID_DAYS = 3650
FILE_NAME = "node.pem"
PEER_CERTIFICATE = "peer_certificate"
"""in the state of a request's ASGI scope: the client's, verified, as `getpeercert()` returns it"""
_DOMAIN = ".node.sagehen"
_CONTROL_DOMAIN = ".control.sagehen"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n", re.DOTALL)


class Authority(NamedTuple):
    """The certificate and the key of a cluster. The key is the cluster's: who has it can issue
    certificates for more nodes."""

    certificate_pem: bytes
    key_pem: bytes


class NodeCertificate(NamedTuple):
    """A node's certificate and key, and its authority's certificate."""

    certificate_pem: bytes
    key_pem: bytes
    authority_pem: bytes


def make_authority() -> Authority:
    """Makes the authority of a new cluster."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Sagehen cluster")
    builder = _builder(name, key, x509.KeyUsage(**{**_KEY_USES, "key_cert_sign": True}))
    certificate = _sign(
        builder.issuer_name(name).add_extension(x509.BasicConstraints(True, 0), critical=True), key
    )
    return Authority(_certificate_pem(certificate), _key_pem(key))


def issue(authority: Authority, node_id: str, has_control: bool = False) -> NodeCertificate:
    """Issues a certificate with which a node is a server and a client.

    Args:
        has_control: the node has a control, which may lead the cluster.

    Raises:
        Invalid: `node_id` cannot be a node's, or `authority` is none.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    names = [server_name(node_id)]
    if has_control:
        names.append(node_id + _CONTROL_DOMAIN)
    try:
        issuer = x509.load_pem_x509_certificate(authority.certificate_pem)
        issuer_key = serialization.load_pem_private_key(authority.key_pem, password=None)
    except ValueError as error:
        raise Invalid(f"The cluster's key cannot be read: {error}") from error
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise Invalid("The cluster's key is no key of an elliptic curve.")
    if issuer_key.public_key() != issuer.public_key():
        raise Invalid("The cluster's key is not that of its certificate.")
    key = ec.generate_private_key(ec.SECP256R1())
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer_id = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(_name(node_id), key, x509.KeyUsage(**{**_KEY_USES, "digital_signature": True}))
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(False, None), critical=True)
        .add_extension(x509.SubjectAlternativeName([*map(x509.DNSName, names)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id),
            critical=False,
        )
    )
    return NodeCertificate(
        _certificate_pem(_sign(builder, issuer_key)), _key_pem(key), authority.certificate_pem
    )


def write_certificate(folder: Path, certificate: NodeCertificate) -> None:
    """Writes all in one file, so that a key and a certificate of different nodes never meet."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    content = certificate.key_pem + certificate.certificate_pem + certificate.authority_pem
    write_secret(folder / FILE_NAME, content)


def server_context(folder: Path) -> ssl.SSLContext:
    """Serves members of the cluster only. Raises HomeError."""
    context = _context(folder, ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    # Connections stay open for long, and each begins with a look at both certificates.
    context.num_tickets = 0
    return context


def client_context(folder: Path) -> ssl.SSLContext:
    """Connects to the node whose `server_name` is expected. Raises HomeError."""
    return _context(folder, ssl.PROTOCOL_TLS_CLIENT)


def server_name(node_id: str) -> str:
    """Returns the DNS name by which clients check a node's certificate. Raises Invalid."""
    if NODE_ID.fullmatch(node_id) is None:
        raise Invalid(
            f"{node_id!r} cannot be the id of a node: 1 to 40 characters of a-z, 0-9 and - are "
            "expected."
        )
    return node_id + _DOMAIN


def peer_node_id(certificate: Any) -> str:
    """Returns the node whose verified certificate this is, as `getpeercert()` returns it.

    Raises:
        Invalid: it names no node.
    """
    names = (certificate or {}).get("subjectAltName", ())
    for kind, name in names:
        if kind == "DNS" and name.endswith(_DOMAIN):
            return str(name.removesuffix(_DOMAIN))
    raise Invalid(f"A certificate of the cluster names no node: {names!r}")


def speaks_for_control(certificate: Any) -> bool:
    """Returns whether a verified certificate, as `getpeercert()` returns it, is that of a node with
    a control."""
    names = (certificate or {}).get("subjectAltName", ())
    return any(kind == "DNS" and name.endswith(_CONTROL_DOMAIN) for kind, name in names)


def _context(folder: Path, protocol: int) -> ssl.SSLContext:
    file = folder / FILE_NAME
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        certificates = _CERTIFICATE.findall(file.read_text("ascii"))
        context.load_cert_chain(file)
        # Only the last one is trusted: the node's own comes first.
        context.load_verify_locations(cadata=certificates[-1])
    except (OSError, ValueError, IndexError) as error:  # ssl.SSLError is an OSError
        raise HomeError(
            f"The certificate of this node in {file} cannot be used: {error}. Remove the file and "
            "let the node join the cluster again."
        ) from error
    return context


_KEY_USES = dict.fromkeys(
    (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    ),
    False,
)


def _builder(
    subject: "x509.Name", key: "EllipticCurvePrivateKey", uses: "x509.KeyUsage"
) -> "x509.CertificateBuilder":
    import datetime

    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # The clock of another node may be behind ours.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(uses, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _sign(builder: "x509.CertificateBuilder", key: "EllipticCurvePrivateKey") -> "x509.Certificate":
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _name(common_name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _certificate_pem(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
