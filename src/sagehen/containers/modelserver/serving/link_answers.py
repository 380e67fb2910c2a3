"""Large answers that a model server sends over a link, as the gateway takes them."""

import logging
from typing import TYPE_CHECKING

from sagehen.containers.modelserver.serving.link_requests import LinkRequest
from sagehen.containers.modelserver.serving.responses import answer_too_large
from sagehen.containers.modelserver.serving.server import ModelServer
from sagehen.containers.modelserver.serving.streaming import AnswerStream
from sagehen.link.stream import BodySender

if TYPE_CHECKING:
    from sagehen.containers.modelserver.serving.link_connection import LinkConnection

__all__ = ["LargeAnswer", "StreamedLinkAnswer"]

log = logging.getLogger(__name__)


class LargeAnswer:
    """A large answer that is being sent."""

    def __init__(self, connection: "LinkConnection", number: int) -> None:
        self._connection = connection
        self._number = number
        self.sender = BodySender(connection, number, self.drained)

    def drained(self) -> None:
        self._connection.sent(self._number, self)

    def abandon(self) -> None:
        self.sender.stop()


class StreamedLinkAnswer(LargeAnswer):
    """An answer that a worker is still making."""

    def __init__(
        self,
        connection: "LinkConnection",
        server: ModelServer,
        request: LinkRequest,
        stream: AnswerStream,
    ) -> None:
        super().__init__(connection, request.number)
        self._server = server
        self._request = request
        self._stream = stream
        self._bytes = 0
        self._is_over = False
        """the worker has made all of it"""

    def begin(self) -> None:
        self._stream.on_change = self.drained
        self.drained()

    def drained(self) -> None:
        stream, sender = self._stream, self.sender
        if self._is_over:
            self._connection.sent(self._number, self)
            return
        while not sender.is_full and (piece := stream.take()) is not None:
            self._bytes += len(piece)
            if self._bytes > self._server.max_answer_bytes:
                answer = answer_too_large(self._bytes, self._server.max_answer_bytes)
                log.error("%s", answer.body)
                stream.abandon()
                self._end(whole=False)
                return
            sender.add(piece)
        if stream.over:
            self._end(stream.whole)

    def abandon(self) -> None:
        """The gateway does not want the rest."""
        super().abandon()
        if self._is_over:
            return
        self._is_over = True
        self._server.abandon(self._request)
        self._stream.abandon()
        self._server.end(self._request)

    def _end(self, whole: bool) -> None:
        self._is_over = True
        self._stream.on_change = None
        self._server.end(self._request)
        if whole:
            self.sender.end()
            self._connection.sent(self._number, self)
        else:
            self.sender.stop()
            self._connection.broke_off(self._number)
