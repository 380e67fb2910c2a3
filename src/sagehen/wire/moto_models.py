"""Services as moto's parsers and serializers want them.

Only those two import moto, and nobody imports them before the first request of such a protocol: it
brings boto3, requests and more along, 15 MB and 0.15 s, which a gateway has no use for, and which a
control that starts again has not to wait for. Who parses stays in the event loop's thread: moto
imports some of its own modules as they are needed, and two threads that do so at once race.
"""

import functools

from moto.core import model as moto

from sagehen.wire.services import OperationModel, description

__all__ = ["as_motos"]


def as_motos(operation: OperationModel) -> moto.OperationModel:
    """The same operation with moto's additions."""
    model = operation.service_model
    return _service(model.service_name, model.protocol).operation_model(operation.name)


@functools.cache
def _service(name: str, protocol: str) -> moto.ServiceModel:
    return moto.ServiceModel(description(name, protocol), name)
