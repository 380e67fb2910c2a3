"""SAGEHEN_TRANSFORM_MAX_FAILED_RECORDS: how many records may fail without the job."""

import re
from dataclasses import dataclass
from decimal import Decimal

from sagehen.base.errors import Invalid

__all__ = ["NAME", "Tolerance", "parse_tolerance"]

NAME = "MAX_FAILED_RECORDS"
"""of the option, without SAGEHEN_TRANSFORM_"""
HOPELESS_FACTOR = 2
HOPELESS_RECORDS = 1000
_FORM = re.compile(r"(?:[0-9]{1,3}(?:\.[0-9]{1,6})?%|[0-9]{1,15})")


@dataclass(frozen=True)
class Tolerance:
    """`share` of all records, or a `count`."""

    count: int | None = None
    share: Decimal | None = None

    def is_exceeded(self, failed: int, records: int) -> bool:
        """`records`: all of the job, with those that failed."""
        if self.share is not None:
            return failed > self.share * records
        return failed > (self.count or 0)

    def is_hopeless(self, failed: int, expected_records: float) -> bool:
        """Whether more records have failed already than the job can bear, by far if it is a guess
        how many there are: then more need not be looked for."""
        if self.share is not None:
            return (
                failed > HOPELESS_FACTOR * float(self.share) * expected_records + HOPELESS_RECORDS
            )
        return failed > (self.count or 0)

    @property
    def text(self) -> str:
        if self.share is not None:
            return f"{(self.share * 100).normalize():f}%"
        return str(self.count)


def parse_tolerance(value: str) -> Tolerance:
    """Parses a share such as `1%`, or a number of records. Raises Invalid."""
    if _FORM.fullmatch(value.strip()):
        if not value.strip().endswith("%"):
            return Tolerance(count=int(value))
        share = Decimal(value.strip().removesuffix("%")) / 100
        if share <= 1:
            return Tolerance(share=share)
    raise Invalid(
        f"SAGEHEN_TRANSFORM_{NAME} is {value!r}, which is neither a number of records, such as 10, "
        "nor a share of them, such as 1%."
    )
