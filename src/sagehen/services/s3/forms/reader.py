"""Parses a multipart/form-data stream: its fields, then its file."""

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from sagehen.wire.errors import AwsError

__all__ = ["FormReader"]

_MOST_BYTES_BEFORE_FILE = 20 * 2**10
_MOST_FED_BEFORE_FILE = 2 * _MOST_BYTES_BEFORE_FILE
"""including delimiters and headers"""
_FILE = "file"


class FormReader:
    """A form with one file; anything after the file is ignored."""

    def __init__(self, content_type: str) -> None:
        """Raises AwsError MalformedPOSTRequest without a boundary."""
        self.fields: dict[str, str] = {}
        """by lower-case name; complete when `has_file`"""
        self.names: dict[str, str] = {}
        """names as sent"""
        self.has_file = False
        self.filename: str | None = None
        self._ended = False
        self._pieces: list[bytes] = []
        self._fed = 0
        """bytes before the file, with delimiters and headers"""
        self._in_fields = 0
        """bytes of fields, and of a trailing part's headers"""
        self._header = bytearray()
        self._value = bytearray()
        self._headers: dict[str, str] = {}
        self._name: str | None = None
        """name of the current part; None after the file"""
        self._field = bytearray()
        boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
        if not boundary:
            raise _malformed()
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin_part,
                    "on_header_field": self._add_to_header,
                    "on_header_value": self._add_to_value,
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._end_headers,
                    "on_part_data": self._add_to_part,
                    "on_part_end": self._end_part,
                    "on_end": self._end,
                },
            )
        except FormParserError:
            raise _malformed() from None

    def feed(self, data: bytes) -> bytes:
        """Returns the file's bytes in `data`. Raises AwsError."""
        self._pieces = []
        try:
            self._parser.write(data)
        except FormParserError:
            raise _malformed() from None
        if not self.has_file:
            self._fed += len(data)
            if self._fed > _MOST_FED_BEFORE_FILE:
                raise _too_much_before_file()
        return b"".join(self._pieces)

    def finish(self) -> None:
        """Raises AwsError if the form is incomplete or lacks a file."""
        if not self._ended:
            raise _malformed()
        if not self.has_file:
            raise _other_than_one_file(0)

    def _begin_part(self) -> None:
        self._headers = {}
        self._name = None
        if self.has_file:
            self._in_fields = 0

    def _add_to_header(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._header += data[start:end]

    def _add_to_value(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._value += data[start:end]

    def _end_header(self) -> None:
        self._headers[self._header.decode("latin-1").lower()] = self._value.decode("latin-1")
        self._header, self._value = bytearray(), bytearray()

    def _end_headers(self) -> None:
        kind, options = parse_options_header(self._headers.get("content-disposition"))
        if kind != b"form-data" or b"name" not in options:
            raise _malformed()
        name = _text(options[b"name"])
        if name.lower() == _FILE:
            if self.has_file:
                raise _other_than_one_file(2)
            self.has_file = True
            filename = options.get(b"filename")
            self.filename = None if filename is None else _text(filename)
        elif self.has_file:
            return
        elif name.lower() in self.fields:
            raise _malformed(f"It has more than one field {name}.")
        self._name = name
        self._field = bytearray()

    def _add_to_part(self, data: bytes, start: int, end: int) -> None:
        if self._name is None:
            return
        if self.has_file:
            self._pieces.append(data[start:end])
            return
        self._count(end - start)
        self._field += data[start:end]

    def _end_part(self) -> None:
        if self._name is not None and not self.has_file:
            self.fields[self._name.lower()] = _text(self._field)
            self.names[self._name.lower()] = self._name
        self._name = None

    def _end(self) -> None:
        self._ended = True

    def _count(self, size: int) -> None:
        self._in_fields += size
        if self._in_fields > _MOST_BYTES_BEFORE_FILE:
            raise _too_much_before_file()


def _text(data: bytes | bytearray) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _malformed("Its names and fields have to be UTF-8.") from None


def _too_much_before_file() -> AwsError:
    return AwsError(
        "MaxPostPreDataLengthExceeded",
        "Your POST request fields preceeding the upload file was too large.",
        400,
        MaxPostPreDataLengthBytes=_MOST_BYTES_BEFORE_FILE,
    )


def _malformed(reason: str = "") -> AwsError:
    message = "The body of your POST request is not well-formed multipart/form-data."
    return AwsError("MalformedPOSTRequest", f"{message} {reason}".strip(), 400)


def _other_than_one_file(count: int) -> AwsError:
    return AwsError(
        "InvalidArgument",
        "POST requires exactly one file upload per request.",
        400,
        ArgumentName=_FILE,
        ArgumentValue=count,
    )
