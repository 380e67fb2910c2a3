"""Operations driven directly, on a state and an object store of their own, by a hand-held clock."""

from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from sagehen.api.arrivals import Arrivals
from sagehen.api.call import Call
from sagehen.api.sagemaker import OPERATIONS
from sagehen.domain.names import ArnMaker
from sagehen.domain.objects import Attributes
from sagehen.objects.local import LocalObjectStore
from sagehen.store.database import Database
from sagehen.store.grouped import GroupedWrites
from sagehen.wire.faults import AwsError
from support.clock import HandClock
from support.state import settings_of

MODEL = botocore.session.get_session().get_service_model("sagemaker")
IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"


class Server:
    """`server.CreateModel(ModelName=…)` does the operation; `hints` counts the wake-ups.

    Every answer is checked against botocore's model of it.
    """

    def __init__(self, database: Database, home: Path) -> None:
        self.clock = HandClock(1_800_000_000.0)
        self.objects = LocalObjectStore(database, home / "objects", self.clock)
        self.objects.create_bucket("bucket")
        for key in ("model.tar.gz", "many/a.tar.gz"):
            self.put(key)
        self.database = database
        self.hints = 0
        self.settings = settings_of(home)

    def configure(self, **settings: Any) -> None:
        self.settings = self.settings.model_copy(update=settings)

    def put(self, key: str) -> None:
        """Store an object, of one byte, in the bucket `bucket`."""
        draft = self.objects.draft()
        draft.write(b"x")
        self.objects.put("bucket", key, draft, Attributes())

    def __getattr__(self, operation: str) -> Any:
        act = OPERATIONS[operation]
        shape = MODEL.operation_model(operation).output_shape

        def operate(**params: Any) -> dict[str, Any]:
            answer = act(self.call(), params)
            report = ParamValidator().validate(answer, shape) if shape else None
            assert not (report and report.has_errors()), report.generate_report()
            return answer

        return operate

    def call(self) -> Call:
        return Call(
            settings=self.settings,
            database=self.database,
            writes=GroupedWrites(self.database),
            objects=self.objects,
            clock=self.clock,
            arns=ArnMaker("000000000000", "us-east-1"),
            request_id="r",
            hint=self._hint,
            seal=lambda envelope: envelope.message,
            arrivals=Arrivals(10),
        )

    def _hint(self) -> None:
        self.hints += 1

    def model(self, name: str = "m", **container: Any) -> str:
        """Create a model over the stored archive; its name."""
        primary = {"Image": IMAGE, "ModelDataUrl": "s3://bucket/model.tar.gz", **container}
        self.CreateModel(ModelName=name, PrimaryContainer=primary)
        return name

    def config(self, name: str, *variants: dict[str, Any], **more: Any) -> str:
        """Create an endpoint config, of one ordinary variant where none is given; its name."""
        chosen = list(variants) or [self.variant()]
        self.CreateEndpointConfig(EndpointConfigName=name, ProductionVariants=chosen, **more)
        return name

    @staticmethod
    def variant(name: str = "AllTraffic", **members: Any) -> dict[str, Any]:
        return {
            "VariantName": name,
            "ModelName": "m",
            "InstanceType": "ml.m5.large",
            "InitialInstanceCount": 1,
            **members,
        }


@pytest.fixture
def server(database: Database, tmp_path: Path) -> Server:
    return Server(database, tmp_path)


@pytest.fixture
def refusal() -> Any:
    """`refusal(call)`: the message of the ValidationException that `call()` raises."""

    def message_of(call: Any) -> str:
        with pytest.raises(AwsError) as caught:
            call()
        assert (caught.value.code, caught.value.status) == ("ValidationException", 400)
        return caught.value.message

    return message_of
