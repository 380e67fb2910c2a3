"""moto's serializers of the query and REST protocols, mended where our tests showed them wrong.

- Dates are turned to UTC first; they were written in whatever zone they were given in.
- Carriage returns and control characters in XML are escaped, as S3 does; they were lost or raw.
- A REST body that is a stream or bytes is handed on as it is, and the `Content-Type` that the
  operation gives it stays; it was encoded in base64 first, and the type replaced.
- S3's answers have their documented root elements and namespace.
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
"""Where they are not the name of the output's payload; botocore's model does not have them."""


def write_with_moto(operation: OperationModel, result: Any, request_id: str) -> Response:
    """The answer with the members of `result` that are not None."""
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
    """Dates in UTC; stands before moto's class."""

    def _serialize_type_timestamp(
        self, serialized: Any, value: Any, shape: Shape, key: str
    ) -> None:
        super()._serialize_type_timestamp(  # type: ignore[misc]
            serialized, as_utc(value), shape, key
        )


class _Xml(_Dates):
    """XML that says what it was given; stands before moto's class."""

    def _serialize_body(self, body: Any) -> str:
        return escape_controls(super()._serialize_body(body))  # type: ignore[misc]


class _Rest:
    """Bodies that are not encoded; stands before moto's class."""

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
    """With the names of SQS's Query protocol, as moto's additions to its model have them."""

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
