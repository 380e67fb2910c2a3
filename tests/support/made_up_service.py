"""A service that has what no served one has: shapes of every kind in every place."""

from typing import Any

from botocore.awsrequest import HeadersDict, prepare_request_dict
from botocore.model import ServiceModel
from botocore.parsers import create_parser
from botocore.serialize import create_serializer

from sagehen.wire.http import Request, Response

__all__ = ["made_up", "read_back", "sent"]


def made_up(protocol: str, members: dict[str, Any], shapes: dict[str, Any], **traits: Any) -> Any:
    """The one operation of a service; its input and output have the same members."""
    structure = {"type": "structure", "members": members, **traits}
    uri = traits.get("uri", "/")
    description = {
        "metadata": {
            "apiVersion": "2026-11-01",
            "endpointPrefix": "x",
            "protocol": protocol,
            "serviceFullName": "X",
            "serviceId": "X",
            "targetPrefix": "X",
            "jsonVersion": "1.1",
            "xmlNamespace": "urn:x",
        },
        "operations": {
            "Do": {
                "name": "Do",
                "http": {"method": "POST", "requestUri": uri},
                "input": {"shape": "In", "locationName": "In"},
                "output": {"shape": "Out", "resultWrapper": "DoResult"},
            }
        },
        "shapes": {
            "In": structure,
            "Out": structure,
            **{
                name: {"type": name}
                for name in ("string", "integer", "boolean", "double", "timestamp", "blob")
            },
            **shapes,
        },
    }
    return ServiceModel(description, "x").operation_model("Do")


def sent(operation: Any, params: dict[str, Any]) -> Request:
    """What botocore sends."""
    serializer = create_serializer(operation.service_model.protocol, include_validation=False)
    wired = serializer.serialize_to_request(params, operation)
    body = wired["body"]
    prepare_request_dict(wired, endpoint_url="http://127.0.0.1", context={})
    if isinstance(body, dict):
        from urllib.parse import urlencode

        body = urlencode(body)
    path, _, query = wired["url"].removeprefix("http://127.0.0.1").partition("?")
    headers = {name.lower(): value for name, value in wired["headers"].items()}
    return Request("POST", path, query, headers, body if isinstance(body, bytes) else body.encode())


def read_back(operation: Any, response: Response) -> dict[str, Any]:
    """What botocore reads."""
    wired = {
        "headers": HeadersDict(response.headers),
        "status_code": response.status,
        "body": response.body,
    }
    parser = create_parser(operation.service_model.protocol)
    parsed: dict[str, Any] = parser.parse(wired, operation.output_shape)
    parsed.pop("ResponseMetadata")
    return parsed
