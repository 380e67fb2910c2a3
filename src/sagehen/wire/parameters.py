"""The parameters of a query and of a form: one reader, whose result everybody goes by."""

from urllib.parse import parse_qsl

from sagehen.wire.faults import AwsError
from sagehen.wire.http import Request

__all__ = ["form_parameters", "is_form", "parameters_of", "spellings"]

Parameters = list[tuple[str, str]]
"""Names and values, decoded, in the order that they were sent in."""


def parameters_of(text: str) -> Parameters:
    """The parameters of a raw query or a form; those without a value have an empty one."""
    return parse_qsl(text, keep_blank_values=True)


def is_form(request: Request) -> bool:
    """Whether the request says that its body is a form."""
    return "x-www-form-urlencoded" in request.headers.get("content-type", "")


def form_parameters(request: Request) -> Parameters:
    """The parameters of a request of the Query protocol: those of its body, then of its query.

    Raises:
        AwsError: InvalidQueryParameter, where a name comes twice. One reader would take the first
            value and another one the last.
    """
    given = parameters_of(request.body.decode("latin-1")) + parameters_of(request.raw_query)
    seen = set()
    for name, _ in given:
        if name in seen:
            raise AwsError(
                "InvalidQueryParameter",
                f"The parameter {name[:128]} comes more than once. Send it once, in the body or in "
                "the query.",
                400,
            )
        seen.add(name)
    return given


def spellings(given: Parameters, name: str) -> list[str]:
    """The names among `given` that a careless reader may take for `name`: in any case, and with
    blanks around them."""
    return [sent for sent, _ in given if sent.strip("\0 \t\r\n\v\f").casefold() == name.casefold()]
