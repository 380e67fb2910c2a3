"""What one invocation is counted as, and noted in the access log."""

from collections.abc import Callable

from sagehen.gateway.access_log import AccessLog, Ended
from sagehen.gateway.admission import Admitted

__all__ = ["Account"]


class Account:
    """Times of one invocation, and the counts of its variant.

    Args:
        monotonic: seconds, as all times here.
        access_log: None where nobody wants one.
    """

    __slots__ = (
        "_access_log",
        "_answered_at",
        "_hit",
        "_monotonic",
        "_noted",
        "admitted",
        "instance_id",
        "received_at",
        "sent_at",
    )

    def __init__(self, monotonic: Callable[[], float], access_log: AccessLog | None) -> None:
        self._monotonic = monotonic
        self._access_log = access_log
        self._noted = False
        self._answered_at = 0.0
        self.admitted: Admitted | None = None
        self._hit: bool | None = None
        """The model it names was loaded already; None before it was looked for."""
        self.received_at = 0.0
        """When all of it was here."""
        self.sent_at: float | None = None
        """When an instance got it, the last time."""
        self.instance_id: str | None = None
        """Which."""

    def admit(self, admitted: Admitted) -> None:
        self.admitted = admitted
        variant = admitted.variant
        variant.counters.invocations += 1
        variant.counters.invocations_per_instance += variant.instance_share

    def send(self, instance_id: str) -> None:
        self.sent_at = self._monotonic()
        self.instance_id = instance_id

    def answer(self) -> None:
        """All of the instance's answer is here."""
        self._answered_at = self._monotonic()

    def look_up(self, hit: bool) -> None:
        """Its model was looked for; the last time counts."""
        self._hit = hit

    def count_look_up(self) -> None:
        """Whatever came of it afterwards. Further calls count nothing."""
        hit, self._hit = self._hit, None
        if hit is not None:
            assert self.admitted is not None
            counters = self.admitted.variant.counters
            counters.cache_samples += 1
            counters.cache_hits += hit

    def wait_for_model(self, seconds: float) -> None:
        assert self.admitted is not None
        counters = self.admitted.variant.counters
        counters.loading_waits += 1
        counters.loading_wait_us += round(seconds * 1e6)

    def fail(self, status: int) -> None:
        """Count an error that the model answered with, or no answer at all."""
        assert self.admitted is not None
        counters = self.admitted.variant.counters
        counters.model_errors += 1
        if 400 <= status < 500:
            counters.errors_4xx += 1
        else:
            counters.errors_5xx += 1
        self.end()

    def end(self) -> None:
        """Count what it took."""
        assert self.admitted is not None
        counters = self.admitted.variant.counters
        if self.sent_at is not None:
            now = self._answered_at
            if now < self.sent_at:
                now = self._monotonic()  # It was not answered.
            model_us = int((now - self.sent_at) * 1e6)
            counters.model_latency.seen.append(model_us)
            counters.overhead_latency.seen.append(int((now - self.received_at) * 1e6) - model_us)

    def note(
        self,
        status: int | str,
        request_id: bytes,
        endpoint: str,
        request_bytes: int,
        answer_bytes: int,
    ) -> None:
        """A line in the access log; of several calls the first one counts."""
        if self._access_log is None or self._noted:
            return
        self._noted = True
        now = self._monotonic()
        model_us = None if self.sent_at is None else int((now - self.sent_at) * 1e6)
        since_us = int((now - self.received_at) * 1e6) if self.received_at else 0
        self._access_log.note(
            Ended(
                request_id=request_id,
                endpoint=endpoint,
                variant=self.admitted.variant.route.name if self.admitted else None,
                instance=self.instance_id,
                status=status,
                request_bytes=request_bytes,
                answer_bytes=answer_bytes,
                model_us=model_us,
                overhead_us=since_us - (model_us or 0),
            )
        )
