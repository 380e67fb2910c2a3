"""Makes this machine a node of a cluster: its id, its certificate, its listeners.

The first server of a cluster makes the cluster's authority. Each further one gets the authority's
key, and the keys of the account, by the token that `sagehen cluster token` prints.
"""

import base64
import binascii
import errno
import ipaddress
import re
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import msgspec

from sagehen import __version__
from sagehen.base.cluster_certificates import (
    Authority,
    NodeCertificate,
    issue,
    make_authority,
    write_certificate,
)
from sagehen.base.credentials import Credentials, load_credentials, load_token, write_secret
from sagehen.base.errors import HomeError, SettingError
from sagehen.base.home import Home
from sagehen.base.settings import Settings

__all__ = [
    "JoinToken",
    "NodeAddresses",
    "NodeSetup",
    "has_no_control",
    "join_as_server",
    "lease_holder",
    "load_authority",
    "own_host",
    "prepare_node",
    "read_addresses",
    "read_join_token",
    "take_keys",
    "write_join_token",
]

_NOT_IN_IDS = re.compile(r"[^a-z0-9]+")
_LISTEN_BACKLOG = 1024
ANYWHERE = "192.0.2.1"
"""an address for documents: its route is that to all other machines"""
RECENT_SECONDS = 90.0
"""for which a node that the table has seen counts as one that is there"""
TAKEN_SECONDS = 5.0
TAKEN_POLL_SECONDS = 0.1


class JoinToken(msgspec.Struct, frozen=True, kw_only=True):
    """The secret with which a machine joins. Its holder may do everything that a member may."""

    certificate: str
    key: str
    access_key: str
    secret_key: str
    token: str


class NodeAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """Where other machines reach this one, as `host:port`."""

    node_id: str
    agent: str
    peer: str
    gateway: str
    control: str = ""
    """empty where there is none"""
    version: str = ""
    """of Sagehen there"""


@dataclass(frozen=True)
class NodeSetup:
    """The listeners of a node, which its roles inherit."""

    addresses: NodeAddresses
    agent_listener: socket.socket
    peer_listener: socket.socket
    control_listener: socket.socket | None


def read_join_token(text: str) -> JoinToken:
    """Raises SettingError."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text.strip()), type=JoinToken)
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise SettingError(
            "cluster_token is not what `sagehen cluster token` prints on a machine of the cluster; "
            "copy it as a whole."
        ) from error


def write_join_token(home: Home) -> str:
    """Raises HomeError where this machine has no cluster's key."""
    authority, keys = load_authority(home), load_credentials(home.credentials)
    token = JoinToken(
        certificate=authority.certificate_pem.decode(),
        key=authority.key_pem.decode(),
        access_key=keys.access_key,
        secret_key=keys.secret_key,
        token=load_token(home.token),
    )
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()


def load_authority(home: Home) -> Authority:
    try:
        certificate, key = (
            (home.cluster / name).read_bytes() for name in ("authority.pem", "authority-key.pem")
        )
    except OSError as error:
        raise HomeError(
            f"There is no cluster's key in {home.cluster}: only a machine on which `sagehen up "
            "--cluster` runs has it."
        ) from error
    return Authority(certificate, key)


def take_keys(home: Home, keys: Credentials, token: str) -> None:
    """Writes the keys of the cluster's account into a home that has none.

    Raises HomeError if the home has others.
    """
    wanted = {
        home.credentials: msgspec.json.encode(
            {"access_key": keys.access_key, "secret_key": keys.secret_key}
        ),
        home.token: token.encode(),
    }
    if home.credentials.exists() and load_credentials(home.credentials) != keys:
        raise HomeError(
            f"The home {home.path} has keys of its own, which are not those of the cluster. Join "
            "the cluster with an empty home: --home."
        )
    for path, secret in wanted.items():
        if not path.exists():
            write_secret(path, secret)


def prepare_authority(home: Home, join: JoinToken | None) -> Authority:
    """Returns the authority that this machine knows, or a new one. Raises HomeError."""
    home.cluster.mkdir(mode=0o700, parents=True, exist_ok=True)
    if join is not None:
        authority = Authority(join.certificate.encode(), join.key.encode())
        take_keys(home, Credentials(join.access_key, join.secret_key), join.token)
    elif (home.cluster / "authority-key.pem").exists():
        return load_authority(home)
    else:
        authority = make_authority()
    for name, content in (
        ("authority.pem", authority.certificate_pem),
        ("authority-key.pem", authority.key_pem),
    ):
        (home.cluster / name).unlink(missing_ok=True)
        write_secret(home.cluster / name, content)
    return authority


def join_as_server(settings: Settings, home: Home) -> None:
    """Makes this home a member of the cluster that the state belongs to. Blocks.

    Raises:
        SettingError: the state belongs to a cluster whose token is needed.
        HomeError: the home has other keys.
    """
    from sagehen.placement.store import authority_of, list_nodes
    from sagehen.state.database import Database

    join = read_join_token(settings.cluster_token) if settings.cluster_token else None
    authority = prepare_authority(home, join)
    certificate = authority.certificate_pem.decode()
    database = Database(settings.state_url)
    try:
        with database.write() as connection:
            known = authority_of(connection, certificate)
            nodes = list_nodes(connection)
    finally:
        database.close()
    if known != certificate:
        raise SettingError(
            "The state belongs to a cluster that this machine is no member of. Run `sagehen "
            "cluster token` on a machine of the cluster, and set cluster_token "
            "(SAGEHEN_CLUSTER_TOKEN) to what it prints. A cluster that was restored from a backup "
            "has another token than before."
        )
    own_id = node_id_of(home)
    recent = time.time() - RECENT_SECONDS
    others = [each for each in nodes if each.node_id != own_id and each.seen_at > recent]
    _check_host(own_host(settings), [_host_of(each.agent_address) for each in others])
    write_certificate(home.cluster, issue(authority, own_id, has_control=True))


def _check_host(own: str, others: Sequence[str]) -> None:
    """Raises SettingError where this machine or the others could not be reached."""
    local = next((host for host in others if is_loopback(host)), None)
    if is_loopback(own) and any(not is_loopback(host) for host in others):
        raise SettingError(
            f"This machine's address in the cluster would be {own}, where no other machine reaches "
            "it. Set cluster_host (SAGEHEN_CLUSTER_HOST) or --host to its address in their network."
        )
    if local is not None and not is_loopback(own):
        raise SettingError(
            f"Another server of this cluster has the address {local}, where no other machine "
            "reaches it. Set cluster_host (SAGEHEN_CLUSTER_HOST) or --host there to its address in "
            "your network, and start it again first."
        )


def node_id_of(home: Home) -> str:
    """Returns this home's id in its cluster, which is made once."""
    if not home.node_id.exists():
        host = _NOT_IN_IDS.sub("-", socket.gethostname().lower()).strip("-")[:24] or "node"
        home.cluster.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_secret(home.node_id, f"{host}-{secrets.token_hex(4)}".encode())
    return home.node_id.read_text().strip()


def lease_holder(settings: Settings, home: Home) -> str:
    """Returns the name under which this home's control leads: the same after each start, for it
    then takes over its own lease at once, and no other's. Machines may have one hostname."""
    name = node_id_of(home) if settings.cluster else socket.gethostname()
    return f"{name}:{home.path}"


@contextmanager
def prepare_node(
    home: Home,
    host: str,
    gateway_port: int,
    first_port: int | None = None,
    certificate: NodeCertificate | None = None,
) -> Iterator[NodeSetup]:
    """Listens for the cluster, and says where in a file of the home. Blocks while a port is taken.

    Args:
        first_port: of those for agent, peers and control; None: free ones.
        certificate: of a node without a control.

    Raises SettingError.
    """
    if certificate is not None:
        write_certificate(home.cluster, certificate)
    ports = range(first_port, first_port + 3) if first_port else (0, 0, 0)
    with ExitStack() as stack:
        agent, peer = (stack.enter_context(_listen(host, port)) for port in ports[:2])
        control = stack.enter_context(_listen(host, ports[2])) if certificate is None else None
        addresses = NodeAddresses(
            node_id=node_id_of(home),
            agent=_address(host, agent.getsockname()[1]),
            peer=_address(host, peer.getsockname()[1]),
            gateway=_address(host, gateway_port),
            control=_address(host, control.getsockname()[1]) if control is not None else "",
            version=__version__,
        )
        home.node_addresses.write_bytes(msgspec.json.encode(addresses))
        yield NodeSetup(addresses, agent, peer, control)


def read_addresses(home: Home) -> NodeAddresses:
    """Raises HomeError where this machine is no node of a cluster."""
    try:
        return msgspec.json.decode(home.node_addresses.read_bytes(), type=NodeAddresses)
    except (OSError, msgspec.MsgspecError) as error:
        raise HomeError(f"{home.path} is not the home of a cluster's node.") from error


def has_no_control(home: Home) -> bool:
    """Whether this is the home of a node without a control, which another server's control runs."""
    try:
        return not read_addresses(home).control
    except HomeError:
        return False


def own_host(settings: Settings) -> str:
    """Returns the address at which others reach this machine. Raises SettingError."""
    if settings.cluster_host:
        return settings.cluster_host
    if not (is_loopback(settings.host) or settings.host in ("0.0.0.0", "::")):
        return settings.host
    there = _known_machine(settings)
    if there is not None and is_loopback(there):
        if is_loopback(settings.host):
            return settings.host
        there = None
    there = there or ANYWHERE
    try:
        family, _, _, _, address = socket.getaddrinfo(there, 9, type=socket.SOCK_DGRAM)[0]
        # No packet is sent.
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise SettingError(
            f"This machine's address in the cluster cannot be found: there is no route to {there} "
            f"({error.strerror or error}). Set cluster_host (SAGEHEN_CLUSTER_HOST) to it."
        ) from error


def _known_machine(settings: Settings) -> str | None:
    """Returns a host that all machines of the cluster reach; a loopback one if that is this
    machine, None if it is not known."""
    cluster = settings.cluster or "state"
    if cluster == "auto":
        return None
    if cluster != "state" and not cluster.startswith("local:"):
        return _host_of(cluster)  # of Ray's head
    url = urlsplit(settings.state_url)
    host = url.hostname or parse_qs(url.query).get("host", [""])[0]
    return "127.0.0.1" if not host or host.startswith("/") else host


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listen(host: str, port: int) -> socket.socket:
    """A port that was chosen may be taken for a moment by a predecessor that ends."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    deadline = time.monotonic() + TAKEN_SECONDS
    while True:
        try:
            return socket.create_server((host, port), family=family, backlog=_LISTEN_BACKLOG)
        except OSError as error:
            if port and error.errno == errno.EADDRINUSE and time.monotonic() < deadline:
                time.sleep(TAKEN_POLL_SECONDS)
                continue
            setting, wanted = (
                ("cluster_port", "one with two more free ones behind it")
                if error.errno in (errno.EADDRINUSE, errno.EACCES)
                else ("cluster_host", "an address of this machine")
            )
            raise SettingError(
                f"This machine cannot listen on {_address(host, port)} for its cluster: "
                f"{error.strerror}. Set {setting} (SAGEHEN_{setting.upper()}) to {wanted}."
            ) from error
