"""A gateway of a few lines, at the other end of a container's link."""

from sagehen.containers.modelserver.serving.first_bytes import FirstBytes
from sagehen.containers.modelserver.serving.responses import abandoned
from sagehen.containers.modelserver.serving.server import ModelServer
from sagehen.containers.modelserver.serving.streaming import AnswerStream
from sagehen.link.frames import (
    ANSWER,
    DATA,
    END,
    HELLO,
    INLINE_BYTES,
    LARGE_REQUEST,
    PREFACE,
    REFUSAL,
    REQUEST,
    VERSION,
    encode_frame,
    encode_length,
    encode_settings,
)
from support.clock import HandClock
from support.links import Pipe

__all__ = ["HEAD", "MEBIBYTE", "Gateway", "Stream", "begin", "data", "large", "request"]


HEAD = b"/invocations\naccept: text/csv\r\n"

MEBIBYTE = 2**20


class Gateway:
    """The other side of a link, by hand."""

    def __init__(self, folder, handle=None):
        self.requests = []
        self.clock = HandClock(1.0)
        self.slots = 7
        self.server = ModelServer(
            handle or self.requests.append,
            max_body_bytes=30 * MEBIBYTE,
            clock=self.clock,
            max_answer_bytes=40 * MEBIBYTE,
            slots=lambda: self.slots,
        )
        self.folder = folder
        self.pipe = Pipe(FirstBytes(self.server, folder))
        self.pipe.protocol.connection_made(self.pipe)

    @property
    def connection(self):
        return self.pipe.protocol

    @property
    def frames(self):
        return self.pipe.frames

    def send(self, *frames: bytes) -> None:
        self.pipe.protocol.data_received(b"".join(frames))

    def greet(self, marks=None) -> "Gateway":
        settings = {"versions": [VERSION], "begun": marks}
        self.send(PREFACE, encode_settings(HELLO, settings))
        return self

    def answers(self):
        return {
            number: (status, body)
            for kind, _, number, status, _, body in self.frames
            if kind == ANSWER
        }

    def of(self, *kinds):
        return [frame for frame in self.frames if frame[0] in kinds]

    @property
    def refusal(self) -> str:
        ((_, _, _, _, _, body),) = self.of(REFUSAL)
        return body.decode()

    def sweep(self, seconds):
        self.clock.seconds += seconds
        self.server._look_at_clock()
        for connection in tuple(self.server.connections):
            connection.cut_off_if_overdue(self.server.now)

    @property
    def has_nothing_left(self) -> bool:
        for request in self.requests:
            if request.abandoned:
                request.respond(abandoned())  # as queues do in their time
        return (self.server._awaited, self.server._held_bytes) == (0, 0)


def request(number, body=b"1,2", head=HEAD) -> bytes:
    return encode_frame(REQUEST, number, head, body)


def begin(number, size, head=HEAD) -> bytes:
    return encode_frame(LARGE_REQUEST, number, head, encode_length(size))


def data(number, body=b"", is_last=False) -> bytes:
    return encode_frame(DATA, number, b"", body, flags=END if is_last else 0)


def large(number, body) -> list[bytes]:
    """With all windows open."""
    pieces = [body[at : at + INLINE_BYTES] for at in range(0, len(body), INLINE_BYTES)]
    last = len(pieces) - 1
    return [
        begin(number, len(body)),
        *(data(number, piece, at == last) for at, piece in enumerate(pieces)),
    ]


class Stream(AnswerStream):
    """Of a worker that the test plays."""

    def __init__(self, first=b""):
        self.taken = 0
        self.was_abandoned = False
        super().__init__(first, self._take, self._abandon)

    def _take(self, count):
        self.taken += count

    def _abandon(self):
        self.was_abandoned = True
