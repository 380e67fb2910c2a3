"""A client of S3 on asyncio, for processes that have neither the state nor a store: a few
operations, signed, and retried while S3 is unavailable."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote
from xml.etree import ElementTree

from sagehen.base.clock import Clock
from sagehen.base.errors import SagehenError, Unavailable
from sagehen.base.retry import RetryPolicy
from sagehen.http1.call import LocalAnswer, exchange
from sagehen.http1.pool import Pool
from sagehen.wire.signatures.signing import Signer

__all__ = [
    "MAX_PART_NUMBER",
    "MIN_PART_BYTES",
    "OWNER_HEADER",
    "S3Client",
    "S3Error",
    "S3Object",
    "S3Page",
    "S3Piece",
]

MIN_PART_BYTES = 5 * 2**20
"""of all parts but the last"""
MAX_PART_NUMBER = 10_000
OWNER_HEADER = "x-sagehen-upload-owner"
"""of CreateMultipartUpload, 32 hexadecimal digits: what began the upload finds it again by them,
even if the answer with its id was lost"""
ANSWER_TIMEOUT_SECONDS = 60.0
RETRY_SECONDS = 300.0


class S3Error(SagehenError):
    """S3 refuses a request, and would refuse it again."""

    def __init__(self, code: str, status: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class S3Object(NamedTuple):
    key: str
    size: int
    etag: str


class S3Page(NamedTuple):
    objects: list[S3Object]
    is_last: bool


class S3Piece(NamedTuple):
    """A range of an object."""

    data: bytes
    object_size: int
    etag: str


class S3Client:
    """`address`: `unix:/path` or `tcp:host:port`, as of `Pool`."""

    def __init__(self, address: str, signer: Signer, clock: Clock) -> None:
        self._pool = Pool(address, clock)
        self._signer = signer
        self._clock = clock
        self._host = address.removeprefix("tcp:") if address.startswith("tcp:") else "localhost"
        self._retry = RetryPolicy(clock, RETRY_SECONDS, "Transfers with S3")

    def on_wait(self, tell: Callable[[str], None]) -> None:
        """Has the reasons told why requests are tried again."""
        self._retry.on_wait = tell

    async def list_page(self, bucket: str, prefix: str, after: str = "") -> S3Page:
        """Returns up to 1000 objects behind the key `after`, in the order of keys."""
        query = {"list-type": "2", "encoding-type": "url", "prefix": prefix}
        if after:
            query["start-after"] = after
        root = _parse(await self._ask("GET", bucket, "", query))
        objects = [
            S3Object(
                unquote(_text(entry, "Key")),
                int(_text(entry, "Size")),
                _text(entry, "ETag"),
            )
            for entry in root.iterfind("{*}Contents")
        ]
        return S3Page(objects, _text(root, "IsTruncated") != "true")

    async def read(
        self, bucket: str, key: str, start: int, length: int, etag: str | None = None
    ) -> S3Piece:
        """Returns up to `length` bytes, none behind the end.

        Raises S3Error, also where the object is not the one of `etag` (PreconditionFailed).
        """
        headers = {"range": f"bytes={start}-{start + length - 1}"}
        if etag is not None:
            headers["if-match"] = etag
        try:
            answer = await self._ask("GET", bucket, key, headers=headers)
        except S3Error as error:
            if error.code == "InvalidRange":  # of an empty object, or behind the end
                return S3Piece(b"", start, etag or "")
            raise
        _, _, size = answer.headers.get("content-range", "").rpartition("/")
        whole = int(size) if size.isdigit() else len(answer.body)
        return S3Piece(answer.body, whole, answer.headers.get("etag", ""))

    async def put(
        self, bucket: str, key: str, body: Sequence[bytes], content_type: str | None = None
    ) -> None:
        headers = {"content-type": content_type} if content_type else {}
        await self._ask("PUT", bucket, key, headers=headers, body=body)

    async def create_upload(
        self, bucket: str, key: str, content_type: str | None = None, owner: str | None = None
    ) -> str:
        """Returns the upload's id. `owner`: as of `OWNER_HEADER`."""
        headers = {"content-type": content_type} if content_type else {}
        if owner is not None:
            headers[OWNER_HEADER] = owner
        answer = await self._ask("POST", bucket, key, {"uploads": ""}, headers, body=[])
        return _text(_parse(answer), "UploadId")

    async def upload_part(
        self, bucket: str, key: str, upload_id: str, number: int, body: Sequence[bytes]
    ) -> str:
        """Returns the part's ETag."""
        query = {"partNumber": str(number), "uploadId": upload_id}
        return (await self._ask("PUT", bucket, key, query, body=body)).headers["etag"]

    async def complete_upload(
        self, bucket: str, key: str, upload_id: str, etags: Sequence[str]
    ) -> None:
        """`etags`: of all parts, by number."""
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{_escape(etag)}</ETag></Part>"
            for number, etag in enumerate(etags, 1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        await self._ask("POST", bucket, key, {"uploadId": upload_id}, body=[body])

    async def abort_upload(self, bucket: str, key: str, upload_id: str) -> None:
        """Ignores an upload that has ended."""
        try:
            await self._ask("DELETE", bucket, key, {"uploadId": upload_id})
        except S3Error as error:
            if error.code != "NoSuchUpload":
                raise

    def close_idle(self) -> None:
        self._pool.close_idle(self._clock.monotonic())

    def abort(self) -> None:
        self._pool.abort()

    async def _ask(
        self,
        method: str,
        bucket: str,
        key: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Sequence[bytes] | None = None,
    ) -> LocalAnswer:
        """Raises S3Error, or Unavailable after many tries."""
        path = "/" + quote(bucket, safe="~") + ("/" + quote(key, safe="/~") if key else "")
        encoded = "&".join(
            f"{quote(name, safe='~')}={quote(value, safe='~')}"
            for name, value in sorted((query or {}).items())
        )
        return await self._retry(lambda: self._ask_once(method, path, encoded, headers or {}, body))

    async def _ask_once(
        self,
        method: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
        body: Sequence[bytes] | None,
    ) -> LocalAnswer:
        fields = {**headers, "host": self._host}
        signed = self._signer.sign(method, path, query, fields, self._clock.now())
        if body is not None:
            signed["content-length"] = str(sum(map(len, body)))
        target = f"{path}?{query}" if query else path
        lines = "".join(f"{name}: {value}\r\n" for name, value in signed.items())
        head = f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode()
        request_name = f"S3's {method} {path}"
        answer = await exchange(
            self._pool, [head, *(body or [])], request_name, ANSWER_TIMEOUT_SECONDS
        )
        if answer.status >= 300:
            raise _error_of(answer)
        return answer


def _error_of(answer: LocalAnswer) -> Exception:
    try:
        root = ElementTree.fromstring(answer.body)
        code, message = _text(root, "Code"), _text(root, "Message")
    except (ElementTree.ParseError, ValueError):
        code, message = f"Status{answer.status}", answer.body[:200].decode("utf-8", "replace")
    if answer.status >= 500 or answer.status in (408, 429):
        return Unavailable(f"S3 answered {answer.status} {code}: {message}")
    return S3Error(code, answer.status, message)


def _parse(answer: LocalAnswer) -> ElementTree.Element:
    """Raises Unavailable."""
    try:
        return ElementTree.fromstring(answer.body)
    except ElementTree.ParseError as error:
        raise Unavailable(f"S3 answered something that is not XML: {error}") from error


def _text(element: ElementTree.Element, name: str) -> str:
    """Raises ValueError if the child is missing."""
    child = element.find(f"{{*}}{name}")
    if child is None:
        raise ValueError(f"S3 left out {name}.")
    return child.text or ""


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
