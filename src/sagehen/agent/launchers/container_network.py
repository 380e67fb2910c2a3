"""Sets up a container's own network namespace from within, before its command runs.

A namespace has the loopback device only. For a container with a network, all addresses are then
made local, and all TCP connections but those to 127.0.0.0/8 led to one listener, by a NAT rule of
the namespace. `relay.py`, which stays outside, gets the listeners and makes each connection on the
machine. So nothing is set up on the machine itself, and neither root nor a program like pasta is
needed.

Part of `become_container`: imports only C modules.
"""

import _socket
import struct

__all__ = ["bring_up_loopback", "carriers", "send_listeners", "set_up"]

TRANSPARENT, SERVER, DNS = b"T", b"S", b"D"
"""kinds of listeners, as told to the relay"""
_BACKLOG = 256
_LOOPBACK = "127.0.0.1"

_AF_NETLINK, _ROUTE, _NETFILTER = 16, 0, 12
_REQUEST, _ACK, _CREATE, _APPEND = 0x1, 0x4, 0x400, 0x800
_ERROR = 2
_NESTED = 0x8000
_NEWLINK, _NEWROUTE = 16, 24
_IFF_UP = 1
_LO = 1
"""the index of `lo` in each namespace"""
_TABLE_LOCAL, _PROTO_STATIC, _SCOPE_HOST, _TYPE_LOCAL = 255, 4, 254, 2
_RTA_OIF, _RTA_PREFSRC = 4, 7
_NFT, _BATCH_BEGIN, _BATCH_END = 10, 16, 17
_NEWTABLE, _NEWCHAIN, _NEWRULE = 0, 3, 6
_IPV4 = 2
_LOCAL_OUT, _DSTNAT_PRIORITY, _RAW_PRIORITY = 3, -100, -300
_TABLE = b"sagehen\0"
_CONTAINER_PORT = 8080
_EQUAL, _NOT_EQUAL = 0, 1
_L4PROTO, _NETWORK_HEADER, _DESTINATION = 16, 1, 16
_TRANSPORT_HEADER, _SOURCE_PORT, _DESTINATION_PORT = 2, 0, 2
_REGISTER = 1


def bring_up_loopback() -> None:
    message = struct.pack("=BxHiII", 0, 0, _LO, _IFF_UP, _IFF_UP)
    with _Netlink(_ROUTE) as kernel:
        _ask(kernel, _message(_NEWLINK, _REQUEST | _ACK, message), 1)


def set_up(server_port: int, nameservers: list[str]) -> list[tuple[bytes, _socket.socket]]:
    """Returns the listeners for the relay. The loopback device must be up.

    Raises OSError: the kernel has no NAT, or a port is in use.
    """
    _make_all_addresses_local()
    transparent = _listener((_LOOPBACK, 0))
    _redirect_tcp(transparent.getsockname()[1])
    listeners = [(TRANSPARENT, transparent)]
    if server_port:
        listeners.append((SERVER, _listener((_LOOPBACK, server_port))))
    for address in nameservers:
        datagrams = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
        datagrams.bind((address, 53))
        listeners.append((DNS, datagrams))
        if address.startswith("127."):
            listeners.append((SERVER, _listener((address, 53))))
    return listeners


def carriers() -> tuple[_socket.socket, _socket.socket]:
    """The relay's end and the container's of what carries the listeners."""
    return _socket.socketpair()


def send_listeners(carrier: _socket.socket, listeners: list[tuple[bytes, _socket.socket]]) -> None:
    """Sends all in one message, and closes them and the carrier."""
    rights = b"".join(struct.pack("=i", each.fileno()) for _, each in listeners)
    kinds = b"".join(kind for kind, _ in listeners)
    carrier.sendmsg([kinds], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    carrier.close()
    for _, each in listeners:
        each.close()


def _listener(address: tuple[str, int]) -> _socket.socket:
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(_BACKLOG)
    return listener


def _make_all_addresses_local() -> None:
    """Like `ip route add local default dev lo src 127.0.0.1`."""
    route = struct.pack(
        "=BBBBBBBBI",
        *(_socket.AF_INET, 0, 0, 0),
        *(_TABLE_LOCAL, _PROTO_STATIC, _SCOPE_HOST, _TYPE_LOCAL, 0),
    )
    route += _attribute(_RTA_OIF, struct.pack("=I", _LO))
    route += _attribute(_RTA_PREFSRC, _socket.inet_aton(_LOOPBACK))
    with _Netlink(_ROUTE) as kernel:
        _ask(kernel, _message(_NEWROUTE, _REQUEST | _ACK | _CREATE, route), 1)


def _redirect_tcp(port: int) -> None:
    """Like this, in a table of family `ip`:

    chain output { type nat hook output priority -100;
                   meta l4proto tcp ip daddr != 127.0.0.0/8 redirect to :port }
    chain requests { type filter hook output priority -300;
                     meta l4proto tcp ip daddr 127.0.0.0/8 tcp sport 8080 notrack
                     meta l4proto tcp ip daddr 127.0.0.0/8 tcp dport 8080 notrack }

    The second chain saves requests the tracking of connections, some 20 % of their time in the
    kernel.
    """
    to_port = _attribute(1, _be32(_REGISTER)) + _nested(2, _attribute(1, struct.pack(">H", port)))
    redirect = [
        *_tcp(_NOT_EQUAL),
        (b"immediate\0", to_port),
        (b"redir\0", _attribute(1, _be32(_REGISTER)) + _attribute(2, _be32(_REGISTER))),
    ]
    http = struct.pack(">H", _CONTAINER_PORT)
    batch = [
        _message(_BATCH_BEGIN, _REQUEST, _nf_header(0, _NFT)),
        _nft(_NEWTABLE, _attribute(1, _TABLE)),
        _chain(b"output\0", b"nat\0", _DSTNAT_PRIORITY),
        _rule(b"output\0", redirect),
        _chain(b"requests\0", b"filter\0", _RAW_PRIORITY),
        *(
            _rule(
                b"requests\0",
                [
                    *_tcp(_EQUAL),
                    _payload(_TRANSPORT_HEADER, offset, 2),
                    (b"cmp\0", _compare(_EQUAL, http)),
                    (b"notrack\0", b""),
                ],
            )
            for offset in (_SOURCE_PORT, _DESTINATION_PORT)
        ),
        _message(_BATCH_END, _REQUEST, _nf_header(0, _NFT)),
    ]
    with _Netlink(_NETFILTER) as kernel:
        _ask(kernel, b"".join(batch), len(batch) - 2)


def _tcp(loopback: int) -> list[tuple[bytes, bytes]]:
    """Matches TCP to addresses that are of 127.0.0.0/8 or not."""
    protocol = _attribute(2, _be32(_L4PROTO)) + _attribute(1, _be32(_REGISTER))
    return [
        (b"meta\0", protocol),
        (b"cmp\0", _compare(_EQUAL, bytes([_socket.IPPROTO_TCP]))),
        _payload(_NETWORK_HEADER, _DESTINATION, 1),
        (b"cmp\0", _compare(loopback, b"\x7f")),
    ]


def _payload(base: int, offset: int, length: int) -> tuple[bytes, bytes]:
    values = (_REGISTER, base, offset, length)
    return b"payload\0", b"".join(
        _attribute(kind, _be32(value)) for kind, value in enumerate(values, 1)
    )


def _chain(name: bytes, kind: bytes, priority: int) -> bytes:
    hook = _attribute(1, _be32(_LOCAL_OUT)) + _attribute(2, _be32(priority))
    return _nft(
        _NEWCHAIN,
        _attribute(1, _TABLE) + _attribute(3, name) + _nested(4, hook) + _attribute(7, kind),
    )


def _rule(chain: bytes, expressions: list[tuple[bytes, bytes]]) -> bytes:
    listed = b"".join(
        _nested(1, _attribute(1, name) + _nested(2, data)) for name, data in expressions
    )
    data = _attribute(1, _TABLE) + _attribute(2, chain) + _nested(4, listed)
    return _nft(_NEWRULE, data, _APPEND)


def _compare(operation: int, value: bytes) -> bytes:
    return (
        _attribute(1, _be32(_REGISTER))
        + _attribute(2, _be32(operation))
        + _nested(3, _attribute(1, value))
    )


def _nft(kind: int, data: bytes, more: int = 0) -> bytes:
    flags = _REQUEST | _ACK | _CREATE | more
    return _message(_NFT << 8 | kind, flags, _nf_header(_IPV4, 0) + data)


def _nf_header(family: int, resource: int) -> bytes:
    return struct.pack(">BBH", family, 0, resource)


def _message(kind: int, flags: int, data: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(data), kind, flags, 0, 0) + data


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def _nested(kind: int, data: bytes) -> bytes:
    return _attribute(kind | _NESTED, data)


def _be32(number: int) -> bytes:
    return struct.pack(">i", number)


class _Netlink:
    """A netlink socket as a context."""

    def __init__(self, protocol: int) -> None:
        self._socket = _socket.socket(_AF_NETLINK, _socket.SOCK_RAW, protocol)

    def __enter__(self) -> _socket.socket:
        self._socket.bind((0, 0))
        return self._socket

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def _ask(kernel: _socket.socket, messages: bytes, acknowledgements: int) -> None:
    """Raises OSError if the kernel refuses one of the messages."""
    kernel.send(messages)
    while acknowledgements:
        data = kernel.recv(65536)
        while data:
            length, kind = struct.unpack_from("=IH", data)
            if kind == _ERROR:
                number = -struct.unpack_from("=i", data, 16)[0]
                if number:
                    raise OSError(number, "the kernel refuses to set up a network")
                acknowledgements -= 1
            data = data[(length + 3) & ~3 :]
