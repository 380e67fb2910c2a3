"""The certificate that subscribers check signatures with: where SigningCertURL leads."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sagehen.message_signing import MessageSigner

__all__ = ["certificate_route"]


def certificate_route(signer: MessageSigner) -> Route:
    """GET, for anyone; its path changes with the certificate, so that it may be kept."""

    async def tell(_: Request) -> Response:
        return Response(signer.certificate, media_type="application/x-pem-file")

    return Route(signer.certificate_path, tell)
