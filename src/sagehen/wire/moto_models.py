"""Adds moto's extras to service models.

Only moto's parsers and serializers may import moto, and only on first use: it brings boto3,
requests and more (15 MB, 0.15 s). Parse only in the event loop's thread: moto imports some modules
lazily, and two threads that do so race.
"""

import functools

from moto.core import model as moto

from sagehen.wire.services import OperationModel, description

__all__ = ["as_motos"]


def as_motos(operation: OperationModel) -> moto.OperationModel:
    model = operation.service_model
    return _service(model.service_name, model.protocol).operation_model(operation.name)


@functools.cache
def _service(name: str, protocol: str) -> moto.ServiceModel:
    return moto.ServiceModel(description(name, protocol), name)
