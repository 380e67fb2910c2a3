"""CloudWatch's operations as a client has them: its own serializer and parser at both ends."""

from datetime import UTC, datetime

import pytest

from sagehen.api.call import Call
from sagehen.api.cloudwatch.operations import OPERATIONS
from sagehen.domain.names import ArnMaker
from sagehen.wire.faults import AwsError
from sagehen.wire.match import match
from sagehen.wire.parse import parse
from sagehen.wire.serialize import serialize
from sagehen.wire.validate import validate
from support.clock import HandClock
from support.oracle import read_by_client, sent_by_client
from support.state import settings_of

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


class CloudWatch:
    """`cloudwatch.ListMetrics(Namespace=…)` is asked and answered over the wire."""

    def __init__(self, database, home):
        self.clock = HandClock(NOON.timestamp())
        self.database = database
        self.settings = settings_of(home)

    def configure(self, **settings):
        self.settings = self.settings.model_copy(update=settings)

    def __getattr__(self, operation):
        def operate(**params):
            request = sent_by_client("cloudwatch", operation, params)
            _, found = match(request, "monitoring")
            read = parse(request, found)
            validate(found, read)
            answer = OPERATIONS[operation](self._call(), read)
            return read_by_client("cloudwatch", operation, serialize(found, answer, "the-id"))

        return operate

    def refuses(self, operation, **params):
        """(code, message) of the refusal."""
        with pytest.raises(AwsError) as caught:
            getattr(self, operation)(**params)
        assert caught.value.status == 400
        return caught.value.code, caught.value.message

    def put(self, name="m", *values, at=NOON, unit="None", **dimensions):
        """Values of one minute, in the namespace `Mine`."""
        datum = {
            "MetricName": name,
            "Values": [float(value) for value in values],
            "Timestamp": at,
            "Unit": unit,
            "Dimensions": [{"Name": one, "Value": value} for one, value in dimensions.items()],
        }
        self.PutMetricData(Namespace="Mine", MetricData=[datum])

    def _call(self):
        return Call(
            settings=self.settings,
            database=self.database,
            writes=None,
            objects=None,
            clock=self.clock,
            arns=ArnMaker("000000000000", "us-east-1"),
            request_id="r",
            hint=lambda: None,
            seal=None,
            arrivals=None,
        )


@pytest.fixture
def cloudwatch(database, tmp_path):
    return CloudWatch(database, tmp_path)
