"""The parameters of a query and of a form: one reader, whose result everybody goes by."""

from urllib.parse import parse_qsl

from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request

__all__ = ["check_each_once", "form_parameters", "is_form", "parameters_of", "spellings"]

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
        AwsError: InvalidQueryParameter, where a name comes twice.
    """
    given = parameters_of(request.body.decode("latin-1")) + parameters_of(request.raw_query)
    check_each_once(given)
    return given


def check_each_once(given: Parameters) -> None:
    """Refuse a parameter that comes twice: one reader would take the first value, another one the
    last, and a signature says nothing of their order.

    Raises:
        AwsError: InvalidQueryParameter.
    """
    seen = set()
    for name, _ in given:
        if name in seen:
            why = f"The parameter {name[:128]} comes more than once. Send it once."
            raise AwsError("InvalidQueryParameter", why, 400)
        seen.add(name)


def spellings(given: Parameters, name: str) -> list[str]:
    """The names among `given` that a careless reader may take for `name`: in any case, and with
    blanks around them."""
    return [sent for sent, _ in given if sent.strip("\0 \t\r\n\v\f").casefold() == name.casefold()]
