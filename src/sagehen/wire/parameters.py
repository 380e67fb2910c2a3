"""The one reader of query and form parameters."""

from urllib.parse import parse_qsl

from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request

__all__ = ["check_each_once", "form_parameters", "is_form", "parameters_of", "spellings"]

Parameters = list[tuple[str, str]]
"""decoded, in the order sent"""


def parameters_of(text: str) -> Parameters:
    return parse_qsl(text, keep_blank_values=True)


def is_form(request: Request) -> bool:
    return "x-www-form-urlencoded" in request.headers.get("content-type", "")


def form_parameters(request: Request) -> Parameters:
    """Body parameters precede those of the query. Raises AwsError InvalidQueryParameter."""
    parameters = parameters_of(request.body.decode("latin-1")) + parameters_of(request.raw_query)
    check_each_once(parameters)
    return parameters


def check_each_once(parameters: Parameters) -> None:
    """Refuses repeated parameters: readers differ in taking the first or the last, and signatures
    do not cover the order.

    Raises AwsError InvalidQueryParameter.
    """
    seen = set()
    for name, _ in parameters:
        if name in seen:
            message = f"The parameter {name[:128]} comes more than once. Send it once."
            raise AwsError("InvalidQueryParameter", message, 400)
        seen.add(name)


def spellings(parameters: Parameters, name: str) -> list[str]:
    """Ignores case and blanks, as lenient readers do."""
    return [
        sent for sent, _ in parameters if sent.strip("\0 \t\r\n\v\f").casefold() == name.casefold()
    ]
