"""How many of many things may fail: a number of them, or a share of all."""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Self

from sagehen.base.errors import Invalid

__all__ = ["Tolerance"]

_FORM = re.compile(r"(?:[0-9]{1,3}(?:\.[0-9]{1,6})?%|[0-9]{1,15})")


@dataclass(frozen=True)
class Tolerance:
    """`share` of all, or a `count`."""

    count: int | None = None
    share: Decimal | None = None

    @classmethod
    def parse(cls, variable: str, value: str, things: str) -> Self:
        """Parses a share such as `1%`, or a number. Raises Invalid, which names the variable."""
        if _FORM.fullmatch(value.strip()):
            if not value.strip().endswith("%"):
                return cls(count=int(value))
            share = Decimal(value.strip().removesuffix("%")) / 100
            if share <= 1:
                return cls(share=share)
        raise Invalid(
            f"{variable} is {value[:80]!r}, which is neither a number of {things}, such as 10, nor "
            "a share of them, such as 1%."
        )

    def is_exceeded(self, failed: int, total: int) -> bool:
        """`total`: with those that failed."""
        if self.share is not None:
            return failed > self.share * total
        return failed > (self.count or 0)

    @property
    def text(self) -> str:
        if self.share is not None:
            return f"{(self.share * 100).normalize():f}%"
        return str(self.count)
