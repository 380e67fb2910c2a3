"""SQS's errors, in its own wording where known."""

from sagehen.wire.errors import AwsError

__all__ = [
    "NOT_OF_STANDARD_QUEUES",
    "bad_attribute",
    "bad_parameter",
    "bad_value",
    "fifo",
    "missing",
    "no_queue",
    "out_of_range",
    "unknown_attribute",
]


def no_queue() -> AwsError:
    return AwsError("QueueDoesNotExist", "The specified queue does not exist.", 400)


def missing(parameter: str) -> AwsError:
    return AwsError("MissingParameter", f"The request must contain the parameter {parameter}.", 400)


def bad_value(reason: str) -> AwsError:
    return AwsError("InvalidParameterValue", reason, 400)


NOT_OF_STANDARD_QUEUES = "The request include parameter that is not valid for this queue type."
"""SQS's own words"""


def bad_parameter(parameter: str, value: str, reason: str) -> AwsError:
    return bad_value(f"Value {value[:1024]} for parameter {parameter} is invalid. Reason: {reason}")


def out_of_range(parameter: str, value: object, minimum: int, maximum: int) -> AwsError:
    # SQS words this parameter's message differently.
    bounds = f">= {minimum} and <= {maximum}" if parameter == "WaitTimeSeconds" else ""
    return bad_value(
        f"Value {value} for parameter {parameter} is invalid. Reason: Must be "
        f"{bounds or f'between {minimum} and {maximum}'}, if provided."
    )


def bad_attribute(name: str, cause: str = "") -> AwsError:
    reason = f" Reason: {cause}" if cause else ""
    return AwsError(
        "InvalidAttributeValue", f"Invalid value for the parameter {name}.{reason}", 400
    )


def unknown_attribute(name: str) -> AwsError:
    return AwsError("InvalidAttributeName", f"Unknown Attribute {name[:64]}.", 400)


def fifo() -> AwsError:
    return bad_value("FIFO queues are not implemented by Sagehen; standard queues are.")
