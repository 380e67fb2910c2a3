"""moto's serializers of the query and REST protocols, with fixes found by our tests.

- Dates are converted to UTC.
- Carriage returns and control characters in XML are escaped, as in S3.
- REST bodies that are streams or bytes are sent unchanged with the operation's `Content-Type`; moto
  encoded them in base64.
- S3 responses have their documented root elements and namespace.
"""

from typing import Any

from moto.core import serialize as moto

from sagehen.wire.http import Response
from sagehen.wire.moto_models import as_motos
from sagehen.wire.services import OperationModel, Shape
from sagehen.wire.values import as_utc, escape_controls

__all__ = ["write_with_moto"]

_S3_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_S3_ROOTS = {
    "CompleteMultipartUpload": "CompleteMultipartUploadResult",
    "CreateMultipartUpload": "InitiateMultipartUploadResult",
    "DeleteObjects": "DeleteResult",
    "GetBucketAcl": "AccessControlPolicy",
    "GetBucketLocation": "LocationConstraint",
    "GetBucketTagging": "Tagging",
    "GetBucketVersioning": "VersioningConfiguration",
    "GetObjectAcl": "AccessControlPolicy",
    "GetObjectTagging": "Tagging",
    "ListBuckets": "ListAllMyBucketsResult",
    "ListMultipartUploads": "ListMultipartUploadsResult",
    "ListObjectVersions": "ListVersionsResult",
    "ListObjects": "ListBucketResult",
    "ListObjectsV2": "ListBucketResult",
    "ListParts": "ListPartsResult",
}
"""roots that differ from the payload's name; absent from botocore's model"""


def write_with_moto(operation: OperationModel, result: Any, request_id: str) -> Response:
    model = operation.service_model
    kind = _SERIALIZERS.get(model.service_name) or _SERIALIZERS[model.protocol]
    serializer = kind(as_motos(operation), context=moto.SerializationContext(request_id))
    answer = serializer.serialize(result)
    headers = {name: str(value) for name, value in answer["headers"].items()}
    body = answer["body"]
    return Response(
        answer["status_code"], headers, body.encode() if isinstance(body, str) else body
    )


class _Dates:
    def _serialize_type_timestamp(
        self, serialized: Any, value: Any, shape: Shape, key: str
    ) -> None:
        super()._serialize_type_timestamp(  # type: ignore[misc]
            serialized, as_utc(value), shape, key
        )


class _Xml(_Dates):
    def _serialize_body(self, body: Any) -> str:
        return escape_controls(super()._serialize_body(body))  # type: ignore[misc]


class _Rest:
    operation_model: OperationModel

    def _serialize_result(self, response: dict[str, Any], result: Any) -> dict[str, Any]:
        shape = self.operation_model.output_shape
        payload = shape.serialization.get("payload") if shape else None
        if payload is None or shape.members[payload].type_name not in ("blob", "string"):
            answer: dict[str, Any] = super()._serialize_result(  # type: ignore[misc]
                response, result
            )
            return answer
        others = {name: value for name, value in result.items() if name != payload}
        written: dict[str, Any] = {"body": {}, "headers": {}}
        self._serialize(written, others, shape, "")  # type: ignore[attr-defined]
        body = result.get(payload)
        response["body"] = b"" if body is None else body
        response["headers"].update(written["headers"])
        return response


class _RestJSON(_Rest, _Dates, moto.RestJSONSerializer):  # type: ignore[misc]
    pass


class _Query(_Xml, moto.QuerySerializer):  # type: ignore[misc]
    pass


class _Sqs(_Query):
    """Takes the Query protocol's names from moto's additions to the model."""

    def get_serialized_name(self, shape: Shape, default_name: str) -> str:
        plain = super().get_serialized_name(shape, default_name)
        return str(shape.serialization.get("locationNameForQueryCompatibility", plain))


class _S3(_Rest, _Xml, moto.S3Serializer):  # type: ignore[misc]
    def _serialize_body(self, body: Any) -> str:
        ((root, content),) = body.items()
        root = _S3_ROOTS.get(self.operation_model.name, root)
        return super()._serialize_body({root: {"@xmlns": _S3_NAMESPACE, **content}})


_SERIALIZERS: dict[str, Any] = {
    "rest-json": _RestJSON,
    "query": _Query,
    "s3": _S3,
    "sqs": _Sqs,
}
