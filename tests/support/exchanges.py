"""Exchanges as a gateway's connection makes them."""

from sagehen.http1.exchange import Channel, Exchange

__all__ = ["make_exchange"]


def make_exchange(channel: Channel, request_id: bytes = b"id") -> Exchange:
    exchange = Exchange(channel)
    exchange.request_id = request_id
    exchange.id_line = b"x-amzn-RequestId: %b\r\n" % request_id
    return exchange
