"""SAGEHEN_TRANSFORM_MAX_FAILED_RECORDS: how many records may fail without the job."""

from sagehen.frame import tolerance

__all__ = ["NAME", "RecordTolerance", "parse_tolerance"]

NAME = "MAX_FAILED_RECORDS"
"""of the option, without SAGEHEN_TRANSFORM_"""
HOPELESS_FACTOR = 2
HOPELESS_RECORDS = 1000


class RecordTolerance(tolerance.Tolerance):
    """The share or number of a job's records that may fail."""

    def is_hopeless(self, failed: int, expected_records: float) -> bool:
        """Whether more records have failed already than the job can bear, by far if it is a guess
        how many there are: then more need not be looked for."""
        if self.share is not None:
            return (
                failed > HOPELESS_FACTOR * float(self.share) * expected_records + HOPELESS_RECORDS
            )
        return failed > (self.count or 0)


def parse_tolerance(value: str) -> RecordTolerance:
    """Raises Invalid."""
    return RecordTolerance.parse(f"SAGEHEN_TRANSFORM_{NAME}", value, "records")
