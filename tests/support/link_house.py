"""A container of a few lines, at the other end of a gateway's link."""

from sagehen.link.client import LinkClient
from sagehen.link.frames import (
    ANSWER,
    DATA,
    END,
    LARGE_ANSWER,
    encode_frame,
    encode_length,
)
from support.clock import HandClock
from support.links import Container, Dialler, Request, settle

__all__ = ["TYPE", "House"]


TYPE = b"content-type: text/csv\r\n"


class House:
    """A client, and the containers that it has reached, which all keep `welcome`."""

    def __init__(self, folder):
        self.slots = []
        self.welcome = None
        self.dialler = Dialler(lambda: Container(self.welcome))
        self.folder = folder
        self.client = LinkClient(
            f"link:{folder}/socket", HandClock(), self.slots.append, self.dialler.connect
        )

    @property
    def container(self) -> Container:
        return self.dialler.peers[-1]

    @property
    def stream(self):
        return self.dialler.streams[-1]

    def request(self, body=b"", **params) -> Request:
        return Request(self.client, body, **params)

    async def requests(self, count, body=b"") -> list[Request]:
        """Sent, and received by the container."""
        requests = [self.request(body) for _ in range(count)]
        await settle()
        return requests

    def answer(self, request, body=b"", status=200, lines=TYPE) -> bytes:
        return encode_frame(ANSWER, request.call._number, lines, body, status)

    def begin_answer(self, request, size=None, status=200) -> bytes:
        length = b"" if size is None else encode_length(size)
        return encode_frame(LARGE_ANSWER, request.call._number, TYPE, length, status)

    def data(self, request, body=b"", is_last=False) -> bytes:
        return encode_frame(DATA, request.call._number, b"", body, flags=END if is_last else 0)

    @property
    def has_nothing_left(self) -> bool:
        stream = self.stream
        free = stream._free_numbers
        assert len({number & 0xFFFF for number in free}) == len(free), "a number was freed twice"
        return not stream._calls and len(free) == stream._next_index
