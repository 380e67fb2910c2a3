"""The keys of a transform job's outputs, from those of its inputs."""

from sagehen.frame.s3_locations import Location

__all__ = [
    "ERRORS_SUFFIX",
    "MAX_KEY_BYTES",
    "OUTPUT_SUFFIX",
    "errors_location",
    "output_location",
    "possible_keys",
    "relative_name",
]

MAX_KEY_BYTES = 1024
OUTPUT_SUFFIX = ".out"
ERRORS_SUFFIX = ".errors.jsonl"


def relative_name(prefix: str, key: str) -> str:
    """Returns what a key of an S3Prefix input adds to the output path.

    Below a folder, that is the path in the folder; `prefix` may leave out the folder's last slash.
    If `prefix` ends within a name, that name is kept whole.
    """
    if not prefix.endswith("/") and key.startswith(prefix + "/"):
        return key[len(prefix) + 1 :]
    return key[prefix.rfind("/") + 1 :]


def possible_keys(prefix: str, relative: str) -> list[str]:
    """Returns the keys of which `relative_name` makes `relative`."""
    keys = {f"{prefix}/{relative}", prefix[: prefix.rfind("/") + 1] + relative}
    return sorted(
        key for key in keys if key.startswith(prefix) and relative_name(prefix, key) == relative
    )


def output_location(output_path: Location, relative: str) -> Location:
    """`relative`: as of `relative_name`, or the name in a manifest."""
    return output_path.below(relative + OUTPUT_SUFFIX)


def errors_location(output: Location) -> Location:
    """Returns where the failed records of an object are told."""
    return Location(output.bucket, output.key.removesuffix(OUTPUT_SUFFIX) + ERRORS_SUFFIX)
