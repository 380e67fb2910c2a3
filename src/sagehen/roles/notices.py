"""What control has for topics and queues: their key, who waits for messages, and the deliverer."""

import random
from collections.abc import Coroutine
from functools import partial
from typing import Any

from sagehen.address import public_url
from sagehen.api.arrivals import Arrivals
from sagehen.clock import SYSTEM
from sagehen.deferred.delivery.deliverer import Deliverer
from sagehen.deferred.delivery.outbox import Outbox
from sagehen.deferred.delivery.post_http import HttpPost
from sagehen.deferred.delivery.post_mail import MailPost
from sagehen.deferred.delivery.receivers import Receivers
from sagehen.deferred.delivery.topic_sweeps import TopicSweeps
from sagehen.deferred.record import Record
from sagehen.domain.envelopes import Links, seal
from sagehen.message_signing import load_signer
from sagehen.roles.common import Start
from sagehen.store.database import Database
from sagehen.store.deliveries import DELIVERIES_DUE
from sagehen.store.grouped import GroupedWrites
from sagehen.store.held_lease import HeldLease
from sagehen.store.messages import MESSAGES_SENT

__all__ = ["Notices"]


class Notices:
    """Made in the event loop of control."""

    def __init__(
        self,
        start: Start,
        database: Database,
        writes: GroupedWrites,
        record: Record,
        holder: str,
    ) -> None:
        """`record` counts NotificationFailures; `holder` is whose lease the deliverer has."""
        settings = start.settings
        self.signer = load_signer(start.home.message_key)
        links = Links(public_url(settings), self.signer.certificate_path)
        self.seal = partial(seal, links=links, sign=self.signer.sign)
        self.arrivals = Arrivals(settings.max_long_polls)
        self._http = HttpPost(self.seal, SYSTEM, settings.delivery_timeout_seconds)
        mail = MailPost(settings, links, self.seal, SYSTEM)
        outbox = Outbox(database, writes, SYSTEM, record, random.Random())
        self._deliverer = Deliverer(
            outbox,
            {
                "email": mail.send,
                "email-json": mail.send,
                "event": self._http.send_event,
                "http": self._http.notify,
                "https": self._http.notify,
                "webhook": self._http.call_webhook,
            },
            HeldLease(database, SYSTEM, "deliveries", holder),
            Receivers(settings.max_deliveries, settings.max_receiver_deliveries),
            SYSTEM,
        )
        self._sweeps = TopicSweeps(writes, outbox, SYSTEM, settings.max_waiting_deliveries)
        database.listen(MESSAGES_SENT, self.arrivals.tell)
        database.listen(DELIVERIES_DUE, self._deliverer.hint)

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        """To be run for as long as control lives."""
        return [self._deliverer.run(), self._sweeps.run()]

    async def close(self) -> None:
        await self._http.close()
