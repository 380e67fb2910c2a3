"""How many requests the services were asked, by what became of them."""

from collections import Counter

from sagehen.api.inference_service.refusals import Full, Refused

__all__ = ["Counts"]


class Counts:
    """Since this process began. Types that are not on a white list are not told apart: whoever asks
    chooses them."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, ...]] = Counter()

    def accepted(self, stage: str, kind: str, queued: bool) -> None:
        self._requests[stage, kind, "Queued" if queued else "Accepted"] += 1

    def refused(self, stage: str, refused: Refused) -> None:
        kind = refused.kind if isinstance(refused, Full) else ""
        self._requests[stage, kind, type(refused).__name__] += 1

    def forbidden(self, stage: str) -> None:
        self._requests[stage, "", "Forbidden"] += 1

    def measured(self) -> dict[str, dict[tuple[str, ...], float]]:
        """For Prometheus."""
        return {"InferenceRequests": {key: float(count) for key, count in self._requests.items()}}
